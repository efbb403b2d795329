"""Where Ray exports the metrics of its nodes."""

import ray

from cluster.urls import address_in_url


def metric_addresses() -> list[str]:
    """host:port of every node that is alive and exports metrics. Asks the cluster's directory."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return sorted(
        address_in_url(node["NodeManagerAddress"], node["MetricsExportPort"])
        for node in nodes
        if node["Alive"] and node["MetricsExportPort"] > 0
    )
