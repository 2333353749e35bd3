#!/usr/bin/env python3
"""Reads the event file of `assay telemetry RUN --tensorboard FOLDER` with the tensorboard package and
compares it with the run's telemetry.db. Called by compare.py; by itself:

    .venv-interop/bin/python tests/interop/events.py RUN FOLDER
"""
import pathlib
import sqlite3
import sys

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

QUERIES = {
    "train/loss": "SELECT step, value FROM scalar WHERE name = 'train_loss_nats'",
    "lr": "SELECT step, value FROM scalar WHERE name = 'lr'",
    "val/loss": "SELECT step, value FROM eval WHERE task = 'val' AND metric = 'loss_nats'",
}


def compare(run, folder):
    """The number of values compared; an assertion names the first curve that differs."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    db = sqlite3.connect(f"file:{pathlib.Path(run) / 'telemetry.db'}?mode=ro", uri=True)
    queries = dict(QUERIES)
    for layer, in db.execute("SELECT DISTINCT layer FROM router_layer").fetchall():
        queries[f"router/layer_{layer:02}/max_load"] = f"SELECT step, max_load FROM router_layer WHERE layer = {layer}"
    compared = 0
    for tag, query in queries.items():
        stored = {step: numpy.float32(value) for step, value in db.execute(query)}
        assert tag in tags, (tag, tags)
        found = {event.step: numpy.float32(event.value) for event in accumulator.Scalars(tag)}
        assert found == stored and stored, (tag, found, stored)
        times = [event.wall_time for event in accumulator.Scalars(tag)]
        assert times == sorted(times) and times[0] > 1.7e9, (tag, times)
        compared += len(stored)
    db.close()
    return compared


if __name__ == "__main__":
    print(f"events: {compare(*sys.argv[1:3])} values read back equal")
