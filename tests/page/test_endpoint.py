"""What the one public endpoint, and the addresses beside it, give to programs."""

import dataclasses
import inspect
import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
from desk import client, launched
from fakes import FakePipeline, finished
from gradio_client.exceptions import AppError
from gradio_client.utils import QueueError, Status

from cube3d.page import layout
from cube3d.page.handlers import Endpoint
from cube3d.records import Request
from cube3d.version import VERSION


def test_the_endpoint_has_the_fields_of_a_request_with_its_defaults():
    parameters = list(inspect.signature(Endpoint.generate).parameters.values())[1:]
    fields = dataclasses.fields(Request)
    assert [parameter.name for parameter in parameters] == [field.name for field in fields]
    defaults = [(parameter.default, field.default) for parameter, field in zip(parameters, fields, strict=True)]
    assert defaults[0] == (inspect.Parameter.empty, dataclasses.MISSING)
    assert all(ours == theirs for ours, theirs in defaults[1:])


def test_one_public_endpoint_and_nothing_else(pipeline, store):
    with launched(pipeline, store) as url:
        info = httpx.get(f"{url}gradio_api/info").json()
    assert list(info["named_endpoints"]) == ["/generate"]
    assert info["unnamed_endpoints"] == {}
    assert len(info["named_endpoints"]["/generate"]["returns"]) == 2


def test_no_program_goes_past_the_queue(pipeline, store):
    with launched(pipeline, store) as url:
        asked = {"data": ["a chair", "", 7, 3, 0.9, None, 128, 10_000]}
        answer = httpx.post(f"{url}gradio_api/run/generate", json=asked)
    assert answer.status_code == 404
    assert "queue" in answer.json()["detail"]
    assert pipeline.requests == []


def test_a_stored_object_named_as_an_upload_stays(pipeline, store):
    stored = store.save(finished(Request("a chair", seed=7), pipeline.info))
    asked = {"data": [{"path": str(stored.glb), "meta": {"_type": "gradio.FileData"}}]}
    with launched(pipeline, store) as url:
        answer = httpx.post(f"{url}gradio_api/run/restore", json=asked)
    assert answer.is_success
    assert stored.glb.exists()


def test_a_program_streams_statuses_and_gets_the_file_and_its_description(store):
    pipeline = FakePipeline(tokens=60, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        job = connected.submit(prompt="a chair", seed=7, api_name="/generate")
        *statuses, (file, info) = list(job)
        assert statuses
        assert all(nothing is None for nothing, _ in statuses)
        assert any(status["stage"] == "tokens" and 0 < status["done"] <= 60 for _, status in statuses)
        with open(file, "rb") as stream:
            glb = stream.read()
        stored = store.get(info["id"])
        assert glb == stored.glb.read_bytes()
        assert file.endswith("a-chair.glb")
        assert json.loads(json.dumps(info)) == stored.info
        assert (info["prompt"], info["seed"], info["model"], info["tokens"]) == ("a chair", 7, "fake", 60)
        assert {"faces", "timings"} <= info.keys()
    assert pipeline.requests == [Request("a chair", seed=7)]


def test_every_parameter_travels_by_its_name(pipeline, store):
    asked = {
        "prompt": "a chair",
        "negative_prompt": "legs",
        "seed": 3,
        "guidance": 1.5,
        "top_p": None,
        "box": [1, 2, 1],
        "resolution": 64,
        "faces": None,
        "smooth": 3,
    }
    with launched(pipeline, store) as url, client(url) as connected:
        _, info = connected.predict(**asked, api_name="/generate")
    assert info["request"] == asked
    assert pipeline.requests == [Request(**asked)]


def test_a_program_is_told_what_was_wrong_and_the_next_call_works(pipeline, store):
    with launched(pipeline, store) as url, client(url) as connected:
        with pytest.raises(AppError, match="top_p must be above 0"):
            connected.predict(prompt="a chair", top_p=1.5, api_name="/generate")
        pipeline.error = ZeroDivisionError("secret detail")
        with pytest.raises(AppError, match="Something went wrong") as caught:
            connected.predict(prompt="a chair", api_name="/generate")
        assert "secret" not in str(caught.value)
        pipeline.error = None
        file, _ = connected.predict(prompt="a chair", api_name="/generate")
        assert file


def test_cancelling_a_job_stops_the_tokens_and_frees_the_slot(store):
    pipeline = FakePipeline(tokens=400, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        job = connected.submit(prompt="a chair", api_name="/generate")
        while pipeline.steps < 10:
            time.sleep(0.01)
        job.cancel()
        deadline = time.monotonic() + 3
        while pipeline.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert pipeline.open == 0
        steps = pipeline.steps
        time.sleep(0.2)
        assert pipeline.steps == steps < 100


def test_concurrent_visitors_each_get_their_own_object(pipeline, store):
    prompts = [f"object {number}" for number in range(8)]
    with launched(pipeline, store) as url, client(url) as connected:
        jobs = [connected.submit(prompt=prompt, api_name="/generate") for prompt in prompts]
        infos = [job.result()[1] for job in jobs]
    assert [info["prompt"] for info in infos] == prompts
    assert len({info["id"] for info in infos}) == 8


def test_one_program_leaves_room_in_the_queue_for_others(store):
    pipeline = FakePipeline(tokens=1000, pause=0.05)
    most = layout.WAITING // 2
    with launched(pipeline, store) as url, client(url) as greedy, client(url) as modest:
        served = [greedy.submit(prompt="a chair", api_name="/generate") for _ in range(pipeline.slots)]
        wait_until(lambda: pipeline.open == pipeline.slots)
        more = [greedy.submit(prompt="a chair", api_name="/generate") for _ in range(most)]
        wait_until(lambda: all(job.status().code == Status.IN_QUEUE for job in more))
        with pytest.raises(QueueError):
            greedy.predict(prompt="a chair", api_name="/generate")
        own = modest.submit(prompt="a boat", api_name="/generate")
        time.sleep(1)
        assert not own.done()
        pipeline.pause = 0.001
        for job in served + more:
            job.cancel()
        assert own.result(timeout=60)[1]["prompt"] == "a boat"


def test_a_burst_of_one_program_does_not_slip_past_its_share(store):
    pipeline = FakePipeline(tokens=1000, pause=0.05)
    with launched(pipeline, store) as url, client(url) as greedy:
        jobs = [greedy.submit(prompt="a chair", api_name="/generate") for _ in range(20)]
        most = pipeline.slots + layout.WAITING // 2
        wait_until(
            lambda: sum(job.done() and isinstance(job.exception(), QueueError) for job in jobs) >= len(jobs) - most
        )
        for job in jobs:
            job.cancel()


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.02)


def test_downloads_are_served_in_every_format_under_a_readable_name(pipeline, store):
    stored = store.save(finished(Request("../../A Chair 🪑"), pipeline.info))
    with launched(pipeline, store) as url:
        for format, media in layout.routes.MEDIA_TYPES.items():
            answer = httpx.get(f"{url}results/{stored.id}/{format}")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == media
            assert f'filename="{stored.path(format).name}"' in answer.headers["content-disposition"]
            assert answer.content == stored.path(format).read_bytes()
        for path in ("results/unknown-result/glb", f"results/{stored.id}/exe", f"results/{stored.id}/..%2fresult.json"):
            assert httpx.get(url + path).status_code == 404


def test_who_waits_for_files_leaves_the_page_its_threads(pipeline, store, monkeypatch):
    stored = store.save(finished(Request("a chair"), pipeline.info))
    began, end = Event(), Event()

    def make(*_):
        began.set()
        end.wait(60)
        return "chair.stl", b""

    monkeypatch.setattr("cube3d.store.make_print", make)
    with launched(pipeline, store) as url, ThreadPoolExecutor(60) as pool:
        prints = [pool.submit(httpx.get, f"{url}results/{stored.id}/stl?mm=60", timeout=60) for _ in range(60)]
        try:
            assert began.wait(30)
            time.sleep(1)
            for path in f"results/{stored.id}/glb", f"s/{stored.id}":
                assert httpx.get(url + path, timeout=10).status_code == 200
        finally:
            end.set()
        assert {print.result().status_code for print in prints} == {200}


@pytest.mark.parametrize("session", [{"a": 1}, ["a"], 7])
def test_a_session_that_is_no_name_is_refused_and_not_an_error(pipeline, store, session):
    with launched(pipeline, store) as url:
        asked = {"session_hash": session, "fn_index": 0, "data": []}
        assert httpx.post(f"{url}gradio_api/queue/join", json=asked).status_code == 422


def test_health_answers_while_an_object_is_made(store):
    pipeline = FakePipeline(tokens=100, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        job = connected.submit(prompt="a chair", api_name="/generate")
        while not pipeline.steps:
            time.sleep(0.01)
        expected = {"status": "ok", "model": "fake", "version": VERSION, "slots": 4, "free": 3, "waiting": 0}
        assert httpx.get(f"{url}health").json() == expected
        assert pipeline.open == 1
        job.cancel()


def test_health_counts_what_waits_in_the_queue(store):
    pipeline = FakePipeline(tokens=400, pause=0.02)
    with launched(pipeline, store) as url, client(url) as connected:
        jobs = [connected.submit(prompt="a chair", api_name="/generate") for _ in range(pipeline.slots + 2)]
        deadline, busy = time.monotonic() + 20, {"slots": 4, "free": 0, "waiting": 2}
        while not (said := httpx.get(f"{url}health").json()).items() >= busy.items() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert said.items() >= busy.items()
        for job in jobs:
            job.cancel()


def test_files_outside_the_store_are_refused(pipeline, store, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with launched(pipeline, store) as url:
        for path in (tmp_path / "secret.txt", layout.__file__, "/etc/passwd", "http://127.0.0.1:1/"):
            assert httpx.get(f"{url}gradio_api/file={path}").status_code == 403
