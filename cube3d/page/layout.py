"""The page: what is on it, then what each thing does. Knows no model and no files."""

from __future__ import annotations

import gradio as gr

from .. import records
from ..store import Store
from . import routes, strings, theme, views
from .handlers import Handlers, Pipeline

RUNNING = 4  # requests handed to the pipeline at a time; it shares its slots among them
WAITING = 16  # requests that may queue before visitors are asked to come back
CAMERA = (60, 72, None)  # degrees around and from above: a three-quarter view; the distance fits the object


def build_page(pipeline: Pipeline, store: Store) -> gr.Blocks:
    """The page over one pipeline and one store. Launch it with `launch_options(store)`, or use `serve`."""
    handlers = Handlers(pipeline, store)
    gr.set_static_paths([store.root])  # served from the store itself: gradio's cache would keep a second copy

    with gr.Blocks(title=strings.TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.HTML(views.header(pipeline.info), elem_id="header")
        result = gr.State()
        with gr.Row(elem_id="desk", equal_height=False):
            with gr.Column(elem_id="controls", scale=0, min_width=360):
                with gr.Column(elem_id="ask"):
                    prompt = gr.Textbox(
                        label=strings.PROMPT,
                        placeholder=strings.PROMPT_HINT,
                        lines=3,
                        max_lines=8,
                        autofocus=True,
                        elem_id="prompt",
                    )
                    notices = gr.HTML(elem_id="notices")
                    examples = gr.Dataset(
                        components=[prompt],
                        samples=[[example] for example in strings.EXAMPLES],
                        label=strings.EXAMPLES_LABEL,
                        elem_id="examples",
                    )
                with gr.Row(elem_id="actions"):
                    generate = gr.Button(strings.GENERATE, variant="primary", min_width=0, elem_id="generate")
                    cancel = gr.Button(strings.CANCEL, visible=False, min_width=0, elem_id="cancel")
                note = gr.HTML(views.note(strings.KEYS, "hint"), elem_id="note")
                with gr.Column(elem_id="seeds"):
                    seed = gr.Number(
                        label=strings.SEED, info=strings.SEED_HINT, placeholder=strings.SEED_EMPTY, elem_id="seed"
                    )
                    random_seed = gr.Checkbox(True, label=strings.RANDOM_SEED, elem_id="random-seed")
                with gr.Accordion(strings.ADVANCED, open=False, elem_id="advanced"):
                    guidance = gr.Slider(
                        0, 20, 3.0, step=0.1, label=strings.GUIDANCE, info=strings.GUIDANCE_HINT, elem_id="guidance"
                    )
                    sampling = gr.Radio(
                        [strings.NUCLEUS, strings.GREEDY],
                        value=strings.NUCLEUS,
                        label=strings.SAMPLING,
                        info=strings.SAMPLING_HINT,
                        elem_id="sampling",
                    )
                    top_p = gr.Slider(
                        0.01, 1, 0.9, step=0.01, label=strings.TOP_P, info=strings.TOP_P_HINT, elem_id="top-p"
                    )
                    use_box = gr.Checkbox(False, label=strings.USE_BOX, elem_id="use-box")
                    with gr.Row(visible=False, elem_id="box") as box:
                        sides = [gr.Number(1, label=side, min_width=80) for side in strings.BOX_SIDES]
                    resolution = gr.Slider(
                        *records.RESOLUTIONS,
                        128,
                        step=16,
                        label=strings.RESOLUTION,
                        info=strings.RESOLUTION_HINT,
                        elem_id="resolution",
                    )
                    faces = gr.Number(
                        10_000,
                        label=strings.FACES,
                        info=strings.FACES_HINT,
                        placeholder=strings.FACES_EMPTY,
                        elem_id="faces",
                    )
            with gr.Column(elem_id="result", scale=1, min_width=320):
                with gr.Column(elem_id="stage"):
                    viewer = gr.Model3D(
                        label=strings.VIEWER,
                        show_label=False,
                        interactive=False,
                        height="100%",
                        camera_position=CAMERA,
                        elem_id="viewer",
                    )
                    gr.HTML(views.empty(), elem_id="empty")
                    overlay = gr.HTML(elem_id="overlay")
                card = gr.HTML(elem_id="card")

        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        light = {"queue": False, **quiet}
        device = {"concurrency_id": "device", "concurrency_limit": RUNNING}

        started = generate.click(handlers.begin, outputs=[generate, cancel, note, overlay], **light)
        running = started.then(
            handlers.run,
            [prompt, random_seed, seed, guidance, sampling, top_p, use_box, *sides, resolution, faces],
            [seed, note, overlay, result],
            **quiet,
            **device,
        )
        running.success(handlers.deliver, result, [viewer, card, note, overlay], **light).then(
            handlers.idle, outputs=[generate, cancel], **light
        )
        running.failure(handlers.refused, outputs=[generate, cancel, note, overlay], **light)
        stopped = cancel.click(handlers.cancel, outputs=[generate, cancel, note, overlay], **light)
        stopped.then(None, cancels=running)  # for a run that gradio's queue still holds
        page.unload(handlers.leave)

        page.load(None, js="() => null", outputs=seed)  # an empty gr.Number starts as 0 otherwise
        prompt.change(handlers.notices, prompt, notices, trigger_mode="always_last", **light)
        examples.click(lambda sample: sample[0], examples, prompt, **light).then(
            None, js="() => document.querySelector('#generate').click()"
        )
        sampling.change(lambda choice: gr.update(visible=choice == strings.NUCLEUS), sampling, top_p, **light)
        use_box.change(lambda on: gr.update(visible=on), use_box, box, **light)

        gr.api(handlers.generate, api_name="generate", **device)
        page.queue(max_size=WAITING)
    return page


def launch_options(store: Store) -> dict[str, object]:
    """What gradio takes at launch rather than in Blocks: looks, keys, routes, and nothing from or to the outside."""
    return {
        "theme": theme.theme(),
        "css_paths": theme.CSS,
        "js": theme.JS.read_text(encoding="utf-8"),
        "favicon_path": theme.ICON,
        "footer_links": ["api"],
        "app_kwargs": {"routes": routes.routes(store)},
        "max_file_size": "1mb",
        "run_history": False,
        "enable_monitoring": False,
        "show_error": False,
        "share": False,
        "ssr_mode": False,
    }


def serve(pipeline: Pipeline, store: Store, **options: object) -> tuple[object, str, str]:
    """Build the page and launch it; `options` are those of gr.Blocks.launch: server_name, server_port, root_path ..."""
    return build_page(pipeline, store).launch(**{**launch_options(store), **options})
