"""Hosts and ports as URLs write them."""


def host_in_url(host: str) -> str:
    """IPv6 addresses stand in brackets there."""
    return f"[{host}]" if ":" in host else host


def address_in_url(host: str, port: int) -> str:
    return f"{host_in_url(host)}:{port}"
