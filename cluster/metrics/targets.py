"""Where Ray exports the metrics of its nodes."""

import ray


def metric_addresses() -> list[str]:
    """host:port of every node that is alive and exports metrics. Asks the cluster's directory."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return sorted(
        f"{_host(node['NodeManagerAddress'])}:{node['MetricsExportPort']}"
        for node in nodes
        if node["Alive"] and node["MetricsExportPort"] > 0
    )


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
