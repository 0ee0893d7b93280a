"""How the page looks and answers to keys, as options of Blocks.launch. Knows no events."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes.utils import fonts, sizes

HERE = Path(__file__).parent
CSS = HERE / "page.css"
SCRIPTS = (HERE / "page.js", HERE / "history.js")
ICON = HERE / "icon.png"


def script() -> str:
    """The page's JavaScript as the one function that gradio calls when the page is there."""
    return "() => {\n" + "\n".join(f"{{\n{path.read_text(encoding='utf-8')}}}" for path in SCRIPTS) + "}"


def theme() -> gr.themes.Base:
    """Stone greys, one teal accent, fonts out of the gradio wheel (whose semi-bold Plex lacks most letters: no 600)."""
    look = gr.themes.Base(
        primary_hue="teal",
        secondary_hue="teal",
        neutral_hue="stone",
        radius_size=sizes.radius_lg,
        font=(fonts.LocalFont("IBM Plex Sans", weights=(400, 700)), "ui-sans-serif", "system-ui", "sans-serif"),
        font_mono=(fonts.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace"),
    )
    return look.set(
        body_background_fill="*neutral_100",
        body_background_fill_dark="#141312",
        body_text_color="*neutral_900",
        body_text_color_dark="*neutral_100",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        block_background_fill="white",
        block_background_fill_dark="#1d1b1a",
        block_border_width="0px",
        block_border_width_dark="0px",
        block_shadow="none",
        block_shadow_dark="none",
        block_label_text_color="*neutral_700",
        block_label_text_color_dark="*neutral_300",
        block_title_text_color="*neutral_700",
        block_title_text_color_dark="*neutral_300",
        block_title_text_weight="600",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        input_background_fill="*neutral_50",
        input_background_fill_dark="#141312",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_border_color_focus="*primary_600",
        input_border_color_focus_dark="*primary_400",
        input_border_width="1px",
        input_border_width_dark="1px",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_500",
        input_shadow="none",
        button_large_text_weight="600",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_400",
        button_primary_background_fill_hover_dark="*primary_300",
        button_primary_text_color="white",
        button_primary_text_color_dark="#06201d",
        button_primary_border_color="transparent",
        button_primary_border_color_dark="transparent",
        button_secondary_background_fill="*neutral_100",
        button_secondary_background_fill_hover="*neutral_200",
        button_secondary_background_fill_dark="*neutral_800",
        button_secondary_background_fill_hover_dark="*neutral_700",
        button_secondary_text_color="*neutral_900",
        button_secondary_text_color_dark="*neutral_100",
        button_secondary_border_color="*neutral_300",
        button_secondary_border_color_dark="*neutral_700",
        checkbox_background_color_selected="*primary_700",
        checkbox_background_color_selected_dark="*primary_500",
        checkbox_border_color="*neutral_400",
        checkbox_border_color_dark="*neutral_500",
        slider_color="*primary_700",
        slider_color_dark="*primary_400",
        border_color_primary="*neutral_200",
        border_color_primary_dark="*neutral_800",
    )
