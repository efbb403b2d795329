"""Ray and Serve in a process of their own, that deploys as `serve deploy` does: a line of JSON on
standard input is what to do, a line on standard output says that it is done.

    {"user_config": {...}, "args": {...}}   deploy the application, with those settings; `args`
                                            replaces some of those that it was started with
    {"delete": true}                        take it down
"""

import json
import sys
from typing import Any

from deployments.app import DEPLOYMENT_NAME
from deployments.config import parse_config
from deployments.launcher import APP_NAME, Launcher


def main() -> None:
    settings = json.loads(sys.argv[1])
    launcher = Launcher(parse_config(settings, "test"), address=None)
    try:
        launcher.start_ray()
        launcher.start_serve()
        for line in sys.stdin:
            command = json.loads(line)
            if "delete" in command:
                _delete()
            else:
                _deploy(settings | command.get("args", {}), command["user_config"])
            print("done", flush=True)
    finally:
        launcher.stop()


def _deploy(settings: dict[str, Any], user_config: dict[str, Any]) -> None:
    """Serve is told the target, and goes there by itself."""
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    client = _get_global_client()
    assert client is not None
    application = {
        "name": APP_NAME,
        "import_path": "deployments.app:build",
        "args": settings,
        "deployments": [{"name": DEPLOYMENT_NAME, "user_config": user_config}],
    }
    client.deploy_apps(ServeDeploySchema.model_validate({"applications": [application]}))


def _delete() -> None:
    from ray import serve

    serve.delete(APP_NAME, _blocking=False)


if __name__ == "__main__":
    main()
