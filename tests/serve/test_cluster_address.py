"""`--address` with a cluster that is there."""

import pytest
import ray

from deployments.reach import require_ray


@pytest.mark.usefixtures("app")
def test_a_running_cluster_is_accepted() -> None:
    require_ray(ray.get_runtime_context().gcs_address)
