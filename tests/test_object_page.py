"""The page of one object: what its addresses answer, to browsers, to chats, and to those who try others."""

import io
import json
import re
import zipfile
from html import unescape
from html.parser import HTMLParser
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
import trimesh
from fakes import FakePipeline, finished
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cube3d.downloads import DOWNLOADS
from cube3d.export import PRINTED
from cube3d.page import routes, share, strings
from cube3d.records import Request
from cube3d.store import Store
from cube3d.version import VERSION

PIPELINE = FakePipeline()
MODEL = PIPELINE.info
SAY = strings.say()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def site(store):
    return TestClient(
        Starlette(routes=routes.routes(store, PIPELINE, lambda app: 3)), "http://cube.test", follow_redirects=False
    )


@pytest.fixture
def stored(store):
    return store.save(finished(Request("a red mushroom", seed=7, top_p=None), MODEL))


class Page(HTMLParser):
    """The parts of a page that matter here."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.meta = {
            tag.get("property") or tag.get("name"): tag.get("content") for name, tag in self.tags if name == "meta"
        }
        self.links = [tag["href"] for name, tag in self.tags if name == "a"]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_a_link_in_a_chat_shows_title_description_and_picture(site, stored):
    meta = Page(site.get(f"/s/{stored.id}").text).meta
    assert meta["og:title"] == "a red mushroom"
    assert "seed 7" in meta["og:description"]
    assert meta["og:url"] == f"http://cube.test/{share.page_link(stored)}"
    assert meta["twitter:card"] == "summary_large_image"
    answer = site.get(meta["og:image"])
    assert answer.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.size == (int(meta["og:image:width"]), int(meta["og:image:height"])) == (1200, 630)


@pytest.mark.parametrize(
    "root, headers, home",
    [
        ("", {}, "http://cube.test/"),
        ("/cube", {}, "http://cube.test/cube/"),
        ("/cube", {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "3d.example.org"}, "https://3d.example.org/cube/"),
        ("", {"X-Forwarded-Proto": "https,http", "X-Forwarded-Host": "a.org, b.org"}, "https://a.org/"),
        ("", {"X-Forwarded-Proto": "javascript"}, "http://cube.test/"),
        ("https://example.org/cube", {}, "https://example.org/cube/"),
    ],
)
def test_absolute_addresses_are_those_that_the_visitor_sees(store, stored, root, headers, home):
    app = Starlette(routes=routes.routes(store, PIPELINE, lambda app: 3))
    site = TestClient(app, "http://cube.test", root_path=root)
    answer = site.get(f"/s/{stored.id}", headers=headers)
    assert Page(answer.text).meta["og:image"] == f"{home}s/{stored.id}/card.png"
    assert f'src="{home}s/{stored.id}?embed' in unescape(Page(answer.text).text)


@pytest.mark.parametrize("prefix", ["", "/cube"])
def test_every_part_is_found_whether_or_not_a_proxy_takes_the_root_path_away(store, stored, prefix):
    site = TestClient(Starlette(routes=routes.routes(store, PIPELINE, lambda app: 3)), root_path="/cube")
    for path in f"/s/{stored.id}", f"/results/{stored.id}/glb", "/viewer/object.css", "/viewer/model-viewer.min.js":
        assert site.get(prefix + path).status_code == 200


def test_a_prompt_is_text_wherever_it_stands(site, store):
    prompt = "\"><script>alert(1)</script> '{{ 7 * 7 }} & \u202e<img src=x onerror=alert(1)>"
    stored = store.save(finished(Request(prompt, negative_prompt=prompt, seed=1), MODEL))
    for query in "", "?embed":
        page = Page(site.get(f"/s/{stored.id}{query}").text)
        assert "img" not in [name for name, tag in page.tags if tag.get("src") == "x"]
        assert all("src" in tag for name, tag in page.tags if name == "script")
        assert prompt in page.text
    gone = Page(site.get("/s/gone-gone-gone", params={"prompt": prompt}).text)
    assert not [name for name, _ in gone.tags if name in ("script", "img") and "favicon" not in str(_)]
    assert prompt in gone.text


def test_the_page_offers_every_file_the_recipe_and_another_like_it(site, stored):
    page = Page(site.get(f"/s/{stored.id}").text)
    assert list(routes.MEDIA_TYPES) == list(DOWNLOADS)
    for download, end in DOWNLOADS.items():
        assert f"../results/{stored.id}/{download}" in page.links
        answer = site.get(f"/results/{stored.id}/{download}")
        assert answer.headers["content-type"] == routes.MEDIA_TYPES[download]
        assert f'filename="a-red-mushroom{end}"' in answer.headers["content-disposition"]
    assert zipfile.ZipFile(io.BytesIO(site.get(f"/results/{stored.id}/zip").content)).testzip() is None
    recipes = [dict(parse_qsl(urlsplit(link).query)) for link in page.links if link.startswith("../?")]
    assert [recipe.get("seed") for recipe in recipes] == [None, "7"]
    assert all(recipe["prompt"] == "a red mushroom" and recipe["top_p"] == "greedy" for recipe in recipes)
    assert MODEL.licence in page.text


@pytest.mark.parametrize("format", PRINTED)
def test_a_printer_gets_the_size_that_it_asks_for(site, stored, format):
    answer = site.get(f"/results/{stored.id}/{format}?mm=60")
    assert answer.headers["content-type"] == routes.MEDIA_TYPES[format]
    assert f'filename="a-red-mushroom-60mm.{format}"' in answer.headers["content-disposition"]
    seen = trimesh.load(io.BytesIO(answer.content), file_type=format, force="mesh")
    assert seen.extents.max() == pytest.approx(60)
    for wrong in "0", "2001", "-1", "nan", "inf", "", "big", "6" * 400:
        answer = site.get(f"/results/{stored.id}/{format}", params={"mm": wrong})
        assert answer.status_code == 400
        assert answer.text.startswith("size must")
    vietnamese = site.get(f"/results/{stored.id}/{format}?mm=0", headers={"Accept-Language": "vi"})
    assert vietnamese.text.startswith("Kích thước")
    assert site.get(f"/results/unknown-result/{format}?mm=60").status_code == 404


def test_a_size_means_nothing_to_other_files(site, stored):
    assert site.get(f"/results/{stored.id}/glb?mm=60").content == stored.glb.read_bytes()


def test_an_iphone_is_offered_the_file_that_it_can_show(site, stored):
    (viewer,) = [tag for name, tag in Page(site.get(f"/s/{stored.id}").text).tags if name == "model-viewer"]
    answer = site.get(viewer["ios-src"].removeprefix(".."))
    assert answer.headers["content-type"] == "model/vnd.usdz+zip"


def test_an_object_is_private(site, stored):
    paths = f"/results/{stored.id}/glb", f"/results/{stored.id}/stl?mm=60"
    for path in f"/s/{stored.id}", f"/s/{stored.id}/card.png", *paths:
        headers = site.get(path).headers
        assert headers["x-robots-tag"] == "noindex"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"].startswith("private")
    text = site.get(f"/s/{stored.id}").text
    assert stored.key not in text
    assert Page(text).meta["robots"] == "noindex"


def test_only_the_embedded_viewer_may_be_framed_by_strangers(site, stored):
    for query, by in ("", "'self'"), ("?embed", "*"):
        policy = site.get(f"/s/{stored.id}{query}").headers["content-security-policy"]
        assert f"frame-ancestors {by}" in policy.split(";")[-1]
        assert "default-src 'none'" in policy
        assert "script-src 'self' 'wasm-unsafe-eval';" in policy


def test_head_is_answered_without_a_body(site, stored):
    for path in f"/s/{stored.id}", f"/s/{stored.id}/thumbnail.png", f"/results/{stored.id}/glb", "/health":
        head, get = site.head(path), site.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.headers["content-length"] == str(len(get.content))


def test_a_page_that_is_gone_keeps_the_recipe_of_its_link(site, store, stored):
    link = "/" + share.page_link(stored)
    store.delete(stored.id, stored.key)
    answer = site.get(f"{link}&embed&evil=1")
    assert answer.status_code == 404
    page = Page(answer.text)
    assert "a red mushroom" in page.text
    (again,) = [link for link in page.links if link.startswith("../?")]
    assert parse_qs(urlsplit(again).query) == parse_qs(urlsplit(link).query)
    fields, notice = share.from_query(dict(parse_qsl(urlsplit(again).query)), MODEL, SAY)
    assert (fields, notice) == ({"prompt": "a red mushroom", "seed": 7, "top_p": None}, "")
    assert ("base", {"target": "_blank"}) in page.tags, "in a stranger's frame, its links open elsewhere"
    alone = Page(site.get(f"/s/{stored.id}").text)
    assert SAY("page.gone.lost") in alone.text
    assert "base" not in dict(alone.tags)


@pytest.mark.parametrize("language", strings.LANGUAGES)
def test_the_page_speaks_the_language_of_its_visitor(site, stored, language):
    text = site.get(f"/s/{stored.id}", headers={"Accept-Language": f"{language};q=0.9"}).text
    assert f'<html lang="{language}">' in text
    assert strings.say(language)("page.like") in Page(text).text
    assert (
        strings.say(language)("page.gone")
        in Page(site.get("/s/none-none", headers={"Accept-Language": language}).text).text
    )


def test_its_maker_deletes_an_object_and_nobody_else(site, stored):
    delete = f"/s/{stored.id}/delete"
    assert site.post(delete, json={"key": "wrong"}).status_code == 403
    for body in b"", b"[]", b"{}", b'{"key": 7}', b"\xff", b'"key"':
        assert site.post(delete, content=body).status_code == 400
    assert site.post(delete, content=json.dumps({"key": "x" * 5000})).status_code == 413
    assert site.get(delete).status_code == 405
    assert site.get(f"/s/{stored.id}").status_code == 200

    assert site.post(delete, json={"key": stored.key}).status_code == 204
    for path in f"/s/{stored.id}", f"/s/{stored.id}/thumbnail.png", f"/results/{stored.id}/glb":
        assert site.get(path).status_code == 404
    assert site.post(delete, json={"key": stored.key}).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/s/..%2f..%2fetc%2fpasswd",
        "/s/%2e%2e",
        "/s/.unfinished-0123",
        "/s/unknown-result/thumbnail.png",
        "/s/{id}/result.png",
        "/s/{id}/..%2fresult.json.png",
        "/s/{id}/result.json",
        "/s/{id}%2f..%2f{id}",
        "/results/{id}/..%2fresult.json",
        "/results/{id}/png",
        "/viewer/..%2froutes.py",
        "/viewer/%2e%2e/strings.py",
        "/viewer//etc/passwd",
        "/viewer/object.html",
    ],
)
def test_no_address_leads_out_of_the_store(site, store, stored, path):
    (store.root.parent / "result.json").write_text("{}")
    assert site.get(path.format(id=stored.id)).status_code == 404


def test_whatever_a_page_needs_comes_from_the_same_server(site, stored):
    for query in "", "?embed":
        page = Page(site.get(f"/s/{stored.id}{query}").text)
        needed = [
            tag.get("src") or tag.get("href")
            for name, tag in page.tags
            if name in ("script", "link", "img", "model-viewer")
        ]
        assert len(needed) >= 5
        assert all(address.startswith("../") for address in needed)
        for address in needed:
            if "favicon" not in address:  # gradio's
                assert site.get(address.removeprefix("..")).status_code == 200
    assert not re.search(r"https?://", site.get("/viewer/object.css").text + site.get("/viewer/object.js").text)


def test_a_full_disk_is_said(site, store, stored, monkeypatch):
    def refuse(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    for path in f"/s/{stored.id}/card.png", f"/results/{stored.id}/stl":
        answer = site.get(path)
        assert answer.status_code == 507
        assert "no space left" in answer.text
    assert site.get(f"/s/{stored.id}").status_code == 200


@pytest.mark.parametrize("path", ["/results/{id}/glb", "/results/{id}/stl", "/s/{id}/cutout.png"])
@pytest.mark.parametrize("moment", ["named", "answered"])
def test_a_result_evicted_before_its_file_is_opened_is_gone(store, stored, monkeypatch, path, moment):
    def then_evict(find):
        def found(*names):
            file = find(*names)
            store.delete(stored.id, stored.key)
            return file

        return found

    async def answered(send, request, limiter):
        return then_evict(send)(request)

    if moment == "named":
        monkeypatch.setattr(store, "file", then_evict(store.file))
        monkeypatch.setattr(store, "picture", then_evict(store.picture))
    else:
        monkeypatch.setattr(routes, "run_sync", answered)
    site = TestClient(Starlette(routes=routes.routes(store, PIPELINE, lambda app: 3)))
    answer = site.get(path.format(id=stored.id))
    assert (answer.status_code, answer.text) == (404, SAY("gone"))


def test_a_result_evicted_while_its_maker_deletes_it_is_gone(site, store, stored, monkeypatch):
    delete = store.delete
    monkeypatch.setattr(store, "delete", lambda id, key: delete(id, key) and delete(id, key))
    assert site.post(f"/s/{stored.id}/delete", json={"key": stored.key}).status_code == 404


def test_a_part_of_a_file_is_sent_to_whoever_asks_for_a_part(site, stored):
    answer = site.get(f"/results/{stored.id}/glb", headers={"Range": "bytes=4-11"})
    assert (answer.status_code, answer.content) == (206, stored.glb.read_bytes()[4:12])


def test_health_names_model_and_version_and_says_how_busy_it_is(site):
    expected = {"status": "ok", "model": "fake", "version": VERSION, "slots": 4, "free": 4, "waiting": 3}
    answer = site.get("/health")
    assert answer.json() == expected and answer.headers["cache-control"] == "no-store"
