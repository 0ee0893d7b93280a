"""The version of cube3d, written into every file it makes."""

VERSION = "0.1.0"
