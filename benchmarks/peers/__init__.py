"""The engine beside what people would pick instead: `python -m benchmarks.peers`.

`__main__.py` runs it. Each contender lives in a process of its own (`worker.py` here,
`workers/protocol.py` there) in its own virtual environment (`environments.py`); `contenders.py`
lists them, `workloads.py` makes the prompts, `measuring.py` takes turns, `goals.py` judges,
`tables.py` shows.
"""
