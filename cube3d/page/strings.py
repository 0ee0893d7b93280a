"""Every sentence a visitor can read on the page. Knows no components and no values."""

TITLE = "cube3d"
TAGLINE = "Words in, a 3D object out."

PROMPT = "Prompt"
PROMPT_HINT = "Describe one object, for example: a red mushroom"
EXAMPLES_LABEL = "Try one"
EXAMPLES = (
    "a wooden chair",
    "a red mushroom",
    "a sailing boat",
    "a pine tree",
    "a treasure chest",
    "a red car",
    "a castle tower",
    "a cactus",
)
GENERATE = "Generate"
CANCEL = "Cancel"
KEYS = "Ctrl + Enter generates, Esc cancels"

SEED = "Seed"
SEED_HINT = "The same seed and settings give the same object."
SEED_EMPTY = "drawn at random"
RANDOM_SEED = "New seed each time"

ADVANCED = "Advanced settings"
GUIDANCE = "Guidance"
GUIDANCE_HINT = "How strictly the object follows the prompt."
SAMPLING = "Sampling"
SAMPLING_HINT = "Greedy always takes the likeliest token, whatever the seed."
NUCLEUS = "Varied"
GREEDY = "Greedy"
TOP_P = "Top-p"
TOP_P_HINT = "Share of the likely tokens to draw from; lower is tamer."
USE_BOX = "Set the proportions"
BOX_SIDES = ("Width (x)", "Height (y)", "Depth (z)")
RESOLUTION = "Detail"
RESOLUTION_HINT = "Cells along each side of the volume; more is finer and slower."
FACES = "Triangles"
FACES_HINT = "The most to keep; leave empty to keep all."
FACES_EMPTY = "all"

VIEWER = "3D viewer"
EMPTY_HEAD = "Your object appears here"
EMPTY_BODY = "Write a prompt, or pick an example to start."
SKETCH = "A small cube made of cubes"

WAITING = "Waiting for a free place"
AHEAD_ONE = "1 request is ahead of yours"
AHEAD_MANY = "{ahead} requests are ahead of yours"
STAGES = {
    "text": "Reading the prompt",
    "tokens": "Shaping it token by token",
    "latents": "Unfolding the tokens",
    "field": "Filling the volume",
    "surface": "Finding the surface",
    "mesh": "Tidying the mesh",
    "export": "Writing the file",
}
TOKENS = "{done:,} of {total:,} tokens"
RATE = "{rate:,.0f} a second"
LEFT = "about {left:,.0f} s left"
ELAPSED = "{seconds:.1f} s"
ELAPSED_SHORT = "{milliseconds:.0f} ms"

DONE = "Done in {seconds:.1f} s."
STOPPED = "Stopped."
BUSY = "Too many requests are waiting, or the connection was lost; try again in a minute."
GONE = "This object is no longer stored; generate it again with the seed shown."
UNEXPECTED = "Something went wrong on our side; try again, and quote request {id} if it happens twice."

TRIANGLES = "Triangles"
TRIANGLES_OF = "{faces:,} of at most {asked:,}"
TRIANGLES_ALL = "{faces:,}"
SIZE = "Size"
SIZE_OF = "{x:.2f} × {y:.2f} × {z:.2f} m"
WATERTIGHT = "Watertight"
YES = "yes"
NO = "no"
SHELLS = "Pieces"
SEED_USED = "Seed used"
MODEL = "Model"
MODEL_OF = "{model}, {tokens:,} tokens"
LICENCE = "Licence"
DOWNLOADS = "Download"
DOWNLOAD_HINTS = {
    "glb": "for game engines and the web; metres, y up",
    "obj": "for modelling tools; metres, y up",
    "stl": "for printing; 100 mm, z up",
    "ply": "for mesh tools; metres, y up",
    "3mf": "for printing; 100 mm, z up",
}
TIMINGS = "Time by stage"
STAGES_SHORT = {
    "text": "prompt",
    "tokens": "tokens",
    "latents": "latents",
    "field": "field",
    "surface": "surface",
    "mesh": "mesh",
    "export": "file",
}
SUMMARY = "A 3D object for the prompt “{prompt}”: {faces:,} triangles, {x:.2f} m wide, {y:.2f} m high, {z:.2f} m deep."
