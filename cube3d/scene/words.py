"""The words that place objects and part them, as tables and patterns. Knows no text.

RELATIONS name where something is; LINK finds each place in a clause where another noun phrase may begin.
"""

from __future__ import annotations

import re

from .phrases import PRONOUN, START
from .plan import Relation

RELATIONS: dict[Relation, str] = {  # a longer wording comes before one that begins it
    "left": r"(?:to|on|at) the left(?: side)? of|left of",
    "right": r"(?:to|on|at) the right(?: side)? of|right of",
    "around": r"(?:all )?around|surrounding|on (?:either|both|each|every|all) sides? of",
    "front": r"in front of",
    "behind": r"behind|in back of",
    "between": r"(?:in )?between",
    "on": r"on(?: the)? top of|atop|upon|onto|on",
    "under": r"underneath|under|beneath|below",
    "above": r"above",
    "beside": r"next to|beside|alongside|near|close to",
}
OPPOSITE: dict[Relation, Relation] = {
    "beside": "beside",
    "left": "right",
    "right": "left",
    "front": "behind",
    "behind": "front",
}
ANY = "|".join(RELATIONS.values())
_NAMED = "|".join(f"(?P<{name}>{words})" for name, words in RELATIONS.items())
VERB = (
    r"(?:(?:is|are|sits?|stands?|lies|rests?|standing|placed|put|resting|set|located|positioned|lying|arranged|right|just|"
    r"directly)\s+)*"
)
LINK = re.compile(
    rf"(?:\s*,\s*|\s+)(?<!\bnot\s)(?:and\s+)?{VERB}(?:{_NAMED})\s+(?={START}|{PRONOUN})"
    rf"|\s+(?P<with>with)\s+(?={START}(?:(?!\s+and\s+)[^,]){{0,80}}?\s(?:{ANY})\s+{PRONOUN})"
    r"|(?P<comma>(?!(?<=\d),\d{3})\s*,\s*(?:and\s+)?(?:then\s+|also\s+|finally\s+)?|[.!?:]+\s+)"
    rf"(?={START})"
    rf"|(?P<and>\s+(?:and|plus)\s+(?:then\s+|also\s+)?|\s*[&+]\s*|(?<!\d)\s*[/|]\s*)(?={START})"
    r"|(?<=[a-z]{3})(?<!\bthe)(?P<bare>\s+)(?=\d+\s+[a-z])",
    re.I,
)

INSIDE = re.compile(  # a part of the object is being described
    r"\b(?:with|without|wearing|holding|carrying|having|covered|filled|made|shaped|for|of (?:an?|the|two)|"
    r"\w+ing (?:an?|the|its|his|her))\b",
    re.I,
)
BOUND = {
    "stick", "pole", "post", "pike", "spike", "stake", "string", "rope", "chain", "leash", "hook", "hanger", "wall",
    "ceiling", "leg", "wheel", "foot", "paw", "stilt", "cob", "bone", "side", "left", "right", "end", "back", "head",
}  # fmt: skip
RIDERS = {
    "man", "woman", "boy", "girl", "child", "person", "rider", "knight", "king", "queen", "soldier", "warrior",
    "cowboy", "witch", "wizard", "clown", "monkey", "bear", "santa", "orc", "goblin", "skeleton",
}  # fmt: skip
MOUNTS = {
    "horse", "donkey", "camel", "unicorn", "bicycle", "bike", "unicycle", "tricycle", "motorcycle", "scooter",
    "skateboard", "snowboard", "surfboard", "broom", "broomstick", "sled", "sleigh", "wave",
}  # fmt: skip
GROUND = {"ground", "floor", "earth", "grass", "lawn", "street", "road", "beach"}  # everything stands on it anyway
FLAT = {"rug", "carpet", "mat", "blanket", "tray", "plate", "saucer", "pallet", "platform", "stage", "pedestal"}

# Heads of what follows a comma and describes what stands before it: "a robot, two arms", "a lamp, 30 cm tall"
PARTS = {
    "arm", "leg", "hand", "finger", "foot", "head", "face", "eye", "ear", "nose", "mouth", "beak", "tooth", "tail",
    "wing", "horn", "antler", "hoof", "claw", "paw", "fin", "feather", "fur", "hair", "beard", "mane", "tentacle",
    "wheel", "door", "window", "roof", "chimney", "story", "storey", "level", "floor", "wall", "engine", "mast", "sail",
    "handle", "lid", "spout", "button", "knob", "drawer", "side", "corner", "edge", "layer", "tier", "blade", "hilt",
    "sleeve", "pocket", "stripe", "petal", "branch", "root", "color", "colour", "backrest", "armrest", "oar",
}  # fmt: skip
UNITS = {
    "mm", "cm", "m", "km", "millimeter", "millimetre", "centimeter", "centimetre", "meter", "metre", "inch", "in",
    "foot", "feet", "ft", "yard", "mile", "gram", "kg", "kilo", "kilogram", "pound", "ton", "tonne", "liter", "litre",
    "ml", "gallon", "year", "day", "month", "century", "percent", "degree", "pixel", "polygon", "triangle", "voxel",
    "piece", "part", "stud",
}  # fmt: skip
KINDS = {
    "one", "edition", "model", "version", "style", "design", "look", "theme", "type", "kind", "variant", "finish",
    "make", "scale", "replica", "antique", "relic", "classic", "masterpiece", "original", "prototype", "same",
    "texture", "pattern", "shape", "pose", "size", "material", "colour", "color", "bit", "lot", "few", "little", "view",
}  # fmt: skip
DESCRIBING = (
    "red|orange|yellow|green|blue|purple|violet|pink|brown|black|white|gr[ae]y|golden|silver|beige|turquoise|"
    "big|large|small|tiny|huge|little|giant|tall|short|long|wide|round|square|old|new|broken|open|closed|wooden|dark|light"
)
MATERIALS = {
    "glass", "stone", "rock", "rocks", "stones", "bone", "crystal", "diamond", "grass", "shell", "leaf", "log", "gem",
    "orange", "rose", "peach", "salt", "coin", "star", "plant", "fir", "pine", "oak", "birch", "willow", "palm",
    "human", "baby", "machine", "creature", "character", "ring",
}  # fmt: skip
