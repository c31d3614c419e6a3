"""Trace stores in tests, and what may happen to their shards."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from groundscope.trace.storage.seal import seal
from groundscope.trace.storage.store import TraceStore, TraceWriter


def settings_for(traced, **more):
    return {"fingerprint": dict(traced[0].trace.fingerprint), **more}


def write_store(folder, traced, **options):
    writer = TraceWriter(folder, settings_for(traced), **options)
    for number, item in enumerate(traced):
        if item.example.id not in writer.finished:
            writer.write(number, item)
    writer.finish([{"outcome": "no_answer", "message": "m", "id": "r9"}])
    return TraceStore(folder)


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def column(name, change, sealed=True):
    """Change the first value of a column; what is sealed looks like it was written that way."""

    def changed(table):
        values = table[name].to_pylist()
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array([change(values[0]), *values[1:]], table[name].type))
        said = json.loads(table.schema.metadata[b"groundscope"])
        if sealed:
            said["digests"] = seal(table, said)
        return table.replace_schema_metadata({"groundscope": json.dumps(said)})

    return lambda path: rewrite(path, changed)


def meta(change, sealed=True):
    def changed(table):
        said = change(json.loads(table.schema.metadata[b"groundscope"]))
        if sealed and isinstance(said, dict) and {"shapes", "fingerprint", "model"} <= said.keys():
            said["digests"] = seal(table, said)
        return table.replace_schema_metadata({"groundscope": json.dumps(said)})

    return lambda path: rewrite(path, changed)
