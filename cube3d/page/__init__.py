"""The Gradio page: a pipeline and a store become a page to look at. No tensors, no geometry."""

from .layout import build_page, launch_options, serve

__all__ = ["build_page", "launch_options", "serve"]
