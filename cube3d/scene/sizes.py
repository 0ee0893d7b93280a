"""A noun -> how large such a thing usually is, in metres. Knows no meshes and no scenes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_TALL = {  # by height: things that stand
    0.03: "coin key button dice gem screw bolt nut",
    0.1: "cup mug teacup egg cupcake candle mushroom apple tomato lemon pear onion salt jar ornament peach potato "
    "orange coconut avocado pepper sausage seedling",
    0.15: "glass goblet can vial flask potion bowl pot kettle teapot jug skull bell alarm popsicle lollipop "
    "flowerpot pestle candlestick bomb",
    0.25: "bottle vase bucket clock houseplant flower pumpkin lantern toaster crown helmet basket tulip rose radio "
    "toucan",
    0.35: "cat kitten puppy rabbit chicken duck owl fox raccoon penguin trophy jack-o'-lantern planter urn pelican "
    "monkey",
    0.5: "lamp nightstand stool footstool dog bulldog stump brazier bin microwave guitar sapling cactus plant",
    0.75: "table desk workbench counter barrel crate box chest altar podium cauldron stove oven dishwasher anvil "
    "tricycle",
    0.9: "chair armchair sofa couch bench throne sink toilet bush hedge fence barrier gravestone headstone "
    "tombstone vegetable",
    1.1: "mailbox dresser drawers cabinet fireplace piano easel grill bicycle bike goblin dwarf child boy girl "
    "snowman motorcycle sunflower drum hydrant wheelchair bollard dumpster grave torch flag campfire bonfire "
    "sack cone",
    1.5: "horse cow sheep deer zebra donkey unicorn armor mannequin scarecrow cart well fountain tent statue",
    1.75: "man woman person people human character worker doctor soldier knight warrior viking pirate wizard witch "
    "king queen astronaut ninja zombie skeleton robot orc monster demon alien adventurer cowboy farmer chef "
    "ghost mage elf",
    2.0: "bookcase bookshelf shelf wardrobe closet refrigerator fridge door curtains locker ladder harp stair "
    "stairs sign shower machine signpost rack window antenna trellis creature parasol",
    3.0: "elephant giraffe column pillar arch archway gate wagon catapult ballista palm shrine shed banner stall "
    "stable",
    4.0: "tree fir pine oak birch willow dinosaur dragon t-rex obelisk monument flagpole streetlight streetlamp "
    "billboard trees chimney trebuchet tunnel",
    7.0: "house cottage cabin hut barn shop store church temple farmhouse windmill garage gazebo igloo bungalow "
    "treehouse",
    12.0: "building tower castle mansion hotel school hospital factory lighthouse rocket fortress pyramid cathedral",
    30.0: "skyscraper mountain volcano",
}
_LONG = {  # by longest side: things that lie, roll, swim or fly
    0.03: "ring bead pill pebble",
    0.1: "bug spider butterfly cookie shell watch dart bone leaf strawberry donut doughnut bun cheese steak star "
    "diamond",
    0.2: "spoon fork knife pen pencil phone plate saucer banana carrot fish frog mouse rat bird pigeon burger "
    "hamburger sandwich crab turtle shoe boot glove hat cap grenade hammer wrench screwdriver dagger ball "
    "globe cake bread book dish scroll heart stone bat",
    0.35: "pizza laptop keyboard tray pan pistol revolver gun football basketball teddy bag handbag backpack "
    "crystal ham turkey television monitor computer printer pillow cushion tv",
    0.8: "sword axe bow crossbow shield rifle shotgun staff spear violin shovel pickaxe broom rake rock log snake "
    "painting picture mirror wheel trumpet skateboard umbrella suitcase fern seahorse stick trap tire "
    "chandelier",
    2.0: "bed rug carpet mat bathtub shark dolphin lion tiger bear pig canoe kayak surfboard coffin stage platform "
    "hammock turret cannon pond pallet crates rocks stones logs firewood grass",
    4.2: "car taxi suv sedan jeep buggy van pickup boat rowboat sailboat carriage rover tractor hippo rhino sleigh "
    "drawbridge",
    7.0: "truck lorry ambulance bus firetruck tank yacht helicopter bulldozer excavator caravan trailer",
    12.0: "airplane plane jet spaceship spacecraft ship ufo train locomotive whale bridge cloud asteroid hill "
    "island rainbow hills meteor",
    60.0: "planet moon sun",
}
_SLENDER = 2.8  # a thing known by its height is at most this many heights long
_COMPOUNDS = {  # (height, longest side), where the last word alone would mislead
    "coffee table": (0.45, 1.2),
    "side table": (0.55, 0.6),
    "pool table": (0.8, 2.5),
    "floor lamp": (1.6, 1.8),
    "street lamp": (4.0, 4.5),
    "street light": (4.0, 4.5),
    "traffic light": (3.0, 3.5),
    "palm tree": (5.0, 6.0),
    "christmas tree": (2.2, 2.4),
    "stop sign": (2.2, 2.4),
    "picture frame": (0.3, 0.4),
    "treasure chest": (0.6, 0.9),
    "teddy bear": (0.4, 0.45),
    "rubber duck": (0.1, 0.12),
    "chess piece": (0.08, 0.1),
    "flower pot": (0.25, 0.3),
    "hot air balloon": (12.0, 14.0),
    "soccer ball": (0.22, 0.22),
    "beach ball": (0.4, 0.4),
    "fire hydrant": (0.7, 0.8),
    "trash can": (0.7, 0.8),
    "watering can": (0.3, 0.4),
    "ice cream": (0.15, 0.2),
    "space station": (12.0, 20.0),
    "dog house": (0.9, 1.1),
    "bird house": (0.3, 0.35),
    "doll house": (0.8, 0.9),
}
_ADJECTIVES = {
    "tiny": 0.4,
    "miniature": 0.4,
    "mini": 0.5,
    "toy": 0.12,
    "baby": 0.5,
    "small": 0.7,
    "little": 0.7,
    "big": 1.4,
    "large": 1.4,
    "huge": 2.0,
    "enormous": 2.0,
    "gigantic": 2.5,
    "giant": 2.5,
}


@dataclass(frozen=True, slots=True)
class Size:
    """Metres. A mesh grows until its height is `height` or its longest side `longest`, whichever comes first."""

    height: float
    longest: float


_SIZES = {phrase: Size(*size) for phrase, size in _COMPOUNDS.items()}
_SIZES |= {noun: Size(height, height * _SLENDER) for height, nouns in _TALL.items() for noun in nouns.split()}
_SIZES |= {noun: Size(longest, longest) for longest, nouns in _LONG.items() for noun in nouns.split()}
_UNKNOWN = Size(1.0, 1.0)


def is_known(noun: str) -> bool:
    """Is it listed, as one word: "table", not "stone table"?"""
    return noun.lower() in _SIZES and " " not in noun


@lru_cache(4096)
def typical(phrase: str, noun: str) -> Size:
    """The size of "a small wooden table", whose head noun is "table"; a metre for what nobody listed.

    "a coffee table" is lower than a table, "a watchtower" is a tower; "small", "huge", "toy" scale what is found.
    """
    words = re.findall(r"[\w'-]+", phrase.lower())
    noun = noun.lower()
    before = words[: words.index(noun)] if noun in words else []
    names = [" ".join([*before[start:], noun]) for start in range(len(before) + 1)]
    names += [noun[start:] for start in range(1, len(noun) - 3)]
    size = next((_SIZES[name] for name in names if name in _SIZES), _UNKNOWN)
    for word in before:
        factor = _ADJECTIVES.get(word, 1.0)
        size = Size(size.height * factor, size.longest * factor)
    return size
