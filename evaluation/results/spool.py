"""Append-only spools (contract; see architecture section 6).

A spool line is ``{"v", "writer", "seq", "attempt", "kind", "run_id", "key", "at", "pid", "role", "data"}``.
"""
