"""What the Whisper of make_speech.py hears, word by word: a loop of its encoder and its decoders with the cache."""

import numpy as np

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ALPHABET = " efghinorstuvwxz"
END, START, LONGEST, MOST_WORDS = 0, 1, 32, 8


def read_speech(models, inputs):
    """Generate a text greedily from the model's own tokens, with the cache.

    Args:
        models: a function from inputs to outputs by name for each of `encoder`, `prompt` and `decoder`.
        inputs: `input_features` (1, bands, frames).

    Returns:
        `words` (1, 8): the digit of each word, 10 for what is no digit, -1 after the last word.
    """
    hidden = models["encoder"]({"input_features": inputs["input_features"]})["last_hidden_state"]
    outputs = models["prompt"]({"input_ids": np.array([[START]]), "encoder_hidden_states": hidden})
    cache, text = {}, ""
    while True:
        token = int(outputs["logits"][0, -1].argmax())
        if token == END or len(text) == LONGEST:
            break
        text += ALPHABET[max(token - 2, 0)]
        # The keys and values of the encoder's output come with the prompt only.
        cache |= {name.replace("present", "past_key_values"): outputs[name] for name in outputs if name != "logits"}
        outputs = models["decoder"]({"input_ids": np.array([[token]]), **cache})
    words = [WORDS.index(word) if word in WORDS else len(WORDS) for word in text.split()]
    return {"words": np.array([(words + MOST_WORDS * [-1])[:MOST_WORDS]])}
