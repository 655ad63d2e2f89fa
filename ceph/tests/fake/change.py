#!/usr/bin/env python3
"""Changes the files of the made-up cluster as a command of Ceph's would. usage: change.py COMMAND..."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def load(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)


def store(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


def osd_changes(number, **changes):
    dump = load("osd-dump.json")
    osd = next(osd for osd in dump["osds"] if osd["osd"] == int(number))
    osd.update(changes)
    store("osd-dump.json", dump)


def empty(number):
    dump = load("pg-dump.json")
    for pg in dump["pg_map"]["pg_stats"]:
        pg["acting"] = [osd for osd in pg["acting"] if osd != int(number)]
    store("pg-dump.json", dump)


def metadata(number, has_db):
    entries = load("osd-metadata.json")
    next(entry for entry in entries if entry["id"] == int(number))["bluefs_dedicated_db"] = has_db
    store("osd-metadata.json", entries)


def class_of(number, name):
    dump = load("osd-crush-dump.json")
    next(device for device in dump["devices"] if device["id"] == number)["class"] = name
    store("osd-crush-dump.json", dump)


def pool_flag(name, flag, is_set):
    dump = load("osd-dump.json")
    pool = next(pool for pool in dump["pools"] if pool["pool_name"] == name)
    flags = set(pool.get("flags_names", "").split(",")) - {"", flag}
    pool["flags_names"] = ",".join(sorted(flags | ({flag} if is_set else set())))
    store("osd-dump.json", dump)


def config_key(action, key="", value=""):
    keys = load("keys.json")
    if action in ("ls", "--format"):
        print(json.dumps(sorted(keys)))
    elif action == "get":
        print(keys[key])
    elif action == "set":
        keys[key] = value
    else:
        keys.pop(key, None)
    store("keys.json", keys)


def main(words):
    match words:
        case ["config-key", action, *rest]:
            config_key(action, *rest)
        case ["config", "get", "mgr", _]:
            print("true" if load("keys.json").get("monitored", "1") == "1" else "false")
        case ["device", "monitoring", state]:
            config_key("set", "monitored", "1" if state == "on" else "0")
        case ["osd", "out", number]:
            osd_changes(number, **{"in": 0, "weight": 0})
            empty(number)
        case ["osd", "in", number]:
            osd_changes(number, **{"in": 1, "weight": 1})
        case ["osd", "reweight", number, weight]:
            osd_changes(number, **{"in": 1, "weight": int(float(weight) * 65536) / 65536})
        case ["osd", "destroy", number, _]:
            osd_changes(number, state=["destroyed", "exists"], uuid="none")
        case ["osd", "crush", "set-device-class", name, osd]:
            class_of(int(osd.removeprefix("osd.")), name)
        case ["osd", "primary-affinity", osd, value]:
            osd_changes(osd.removeprefix("osd."), primary_affinity=float(value))
        case ["osd", "pool", "set", name, flag, value]:
            pool_flag(name, flag, value == "1")
        case ["create", number, has_db]:
            osd_changes(number, state=["exists", "up"], up=1, uuid=f"made {os.getpid()}")
            metadata(number, has_db)
        case ["start", number]:
            osd_changes(number, state=["exists", "up"], up=1)
        case ["stop", number]:
            osd_changes(number, up=0)


main(sys.argv[1:])
