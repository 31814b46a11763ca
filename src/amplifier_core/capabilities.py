"""The well-known names in `ModelInfo.capabilities`; providers may add names of their own.

`ALL_WELL_KNOWN_CAPABILITIES` lists the values in the order they are written here.
"""

TOOLS = "tools"
STREAMING = "streaming"
THINKING = "thinking"
VISION = "vision"
JSON_MODE = "json_mode"
FAST = "fast"
CODE_EXECUTION = "code_execution"
WEB_SEARCH = "web_search"
DEEP_RESEARCH = "deep_research"
LOCAL = "local"
AUDIO = "audio"
IMAGE_GENERATION = "image_generation"
COMPUTER_USE = "computer_use"
EMBEDDINGS = "embeddings"
LONG_CONTEXT = "long_context"
BATCH = "batch"

ALL_WELL_KNOWN_CAPABILITIES: list[str] = [value for name, value in list(globals().items()) if name.isupper()]
