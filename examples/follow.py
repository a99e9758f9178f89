#!/usr/bin/env python3
"""Sends the metrics of a run to Weights & Biases or MLflow: what is there, then what comes, until the
run ends. Start it again when the run is resumed: the curves go on, and no step is sent twice.
FOLDER/follow.wandb.json or follow.mlflow.json keeps how far it is. docs/report.md has more."""
import argparse
import json
import math
import os
import sys
import time

TRAIN = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/learning_rate",
         "loss_scale": "train/loss_scale", "skipped": "train/skipped"}
ENDS = {"end": ("FINISHED", 0), "stop": ("KILLED", 0), "failure": ("FAILED", 1)}


def to_wandb(wandb, project, folder, id):
    """Begins a run there, or goes on with the one of this id: its id, and what logs and finishes."""
    run = wandb.init(project=project, name=os.path.basename(folder), id=id, resume="allow")
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    run.save(os.path.join(folder, "config.yaml"), base_path=folder, policy="now")
    return run.id, lambda step, values: run.log({"step": step, **values}), lambda end: run.finish(exit_code=end[1])


def to_mlflow(mlflow, project, folder, id):
    mlflow.set_experiment(project)
    run = mlflow.start_run(run_id=id, run_name=None if id else os.path.basename(folder))
    mlflow.log_artifact(os.path.join(folder, "config.yaml"))
    return (run.info.run_id, lambda step, values: mlflow.log_metrics(values, step=step),
            lambda end: mlflow.end_run(status=end[0]))


def numbers(line, prefix):
    """The numbers of a line by the names of their curves; null and texts are left out."""
    found = {f"memory/{k}": v for k, v in line.get("memory", {}).items()}
    found.update((f"validation/loss/{i}", v) for i, v in enumerate(line.get("validation_losses", [])))
    for key in line.keys() - {"step", "time"}:
        found[prefix + key.replace("validation_", "") if prefix else TRAIN.get(key, "speed/" + key)] = line[key]
    return {name: float(v) for name, v in found.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def read(path, start=0):
    """The objects of whole lines from a byte on, and where these end; the run may be writing the next."""
    with open(path, "rb") as file:
        file.seek(start)
        text = file.read()
    text = text[:text.rfind(b"\n") + 1]
    try:
        return [json.loads(line) for line in text.splitlines()], start + len(text)
    except ValueError:
        sys.exit(f"follow: {path}: a line behind byte {start} is no JSON")


def look(path):
    """When the run began, when it was started last, and its end, if it has ended."""
    began, started, end = None, None, None
    for event in read(path)[0]:
        if event["event"] in ("start", "resume"):
            began, started, end = began or event["time"], event["time"], None
        end = ENDS.get(event["event"], end)
    return began, started, end


def follow(begin, folder, kept, seconds):
    metrics, events = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "events.jsonl")
    if os.path.isdir(folder) and not any(os.path.exists(os.path.join(folder, name)) for name in ("config.yaml", "events.jsonl")):
        sys.exit(f"follow: {folder} is no folder of a run: name what run.dir is")
    if not os.path.exists(events):
        print(f"follow: waits for {events}: no run has begun there; Ctrl-C ends the wait", file=sys.stderr)
    while not (os.path.exists(events) and os.path.exists(metrics) and look(events)[0]):
        time.sleep(seconds)
    state = {"began": look(events)[0], "run": None, "sent": {}}
    if os.path.exists(kept) and read(kept)[0][0]["began"] == state["began"]:
        state = read(kept)[0][0]
    try:
        state["run"], log, finish = begin(folder, state["run"])
    except (ImportError, OSError):
        raise
    except Exception as error:  # the module's own: an account, a part of it that is missing
        sys.exit(f"follow: {os.path.basename(kept).split('.')[1]}: {(str(error) or repr(error)).splitlines()[0]}")
    at, started, end = 0, None, None
    try:
        while not end:
            now = look(events)
            if now[0] != state["began"]:
                sys.exit(f"follow: another run began in {folder}: start this command again")
            # A resumed run cuts the lines of later steps off and makes these steps again.
            lines, behind = read(metrics, at if now[1] == started else 0)
            if look(events) != now:
                continue
            for line in lines:
                prefix = "validation/" if "validation_loss" in line else ""
                if line["step"] > state["sent"].get(prefix, 0):
                    log(line["step"], numbers(line, prefix))
                    state["sent"][prefix] = line["step"]
            at, (_, started, end) = behind, now
            if not end:
                time.sleep(seconds)
    except KeyboardInterrupt:
        pass
    finally:
        with open(kept, "w") as file:
            file.write(json.dumps(state) + "\n")
        finish(end or ENDS["stop"])


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", help="the run's folder (run.dir)")
kind = parser.add_mutually_exclusive_group(required=True)
kind.add_argument("--wandb", action="store_true", help="to Weights & Biases")
kind.add_argument("--mlflow", action="store_true", help="to MLflow")
parser.add_argument("--project", default="zero3d", help="the project, or MLflow's experiment (zero3d)")
parser.add_argument("--seconds", type=float, default=5, help="between two looks at the files (5)")
given = parser.parse_args()
name, begin = ("wandb", to_wandb) if given.wandb else ("mlflow", to_mlflow)
place = os.path.abspath(given.folder)
try:
    module = __import__(name)
    follow(lambda *where: begin(module, given.project, *where), place,
           os.path.join(place, f"follow.{name}.json"), given.seconds)
except ImportError as error:
    sys.exit(f"follow: {error}; install it: python3 -m pip install {name}")
except OSError as error:
    sys.exit(f"follow: {error}")
except KeyboardInterrupt:  # nothing was sent yet
    sys.exit(1)
