"""What the language models are asked for a comparison, written for this course."""

PROMPTS = (
    # facts in a word or two
    "What is the capital of France?",
    "Which planet is closest to the sun?",
    "How many legs does a spider have?",
    "In which country is the city of Kyoto?",
    "What gas do plants take in from the air?",
    "What do bees make?",
    # arithmetic
    "What is 7 plus 5?",
    "What is 12 times 3? Answer with the number only.",
    "I have 10 apples and eat 4. How many are left?",
    "Which number is larger, 15 or 51?",
    "What is half of 90?",
    "Is 17 an even number? Answer yes or no.",
    # going on
    "Complete the sentence: The opposite of hot is",
    "Complete the list: Monday, Tuesday, Wednesday,",
    "Go on: one, two, three, four,",
    "Complete the proverb: Practice makes",
    "Finish this line of code: for i in range(10): print(",
    "Complete: Once upon a time, in a small village by the sea,",
    # doing as told
    "Write one sentence about rain.",
    "Translate 'good morning' into Spanish.",
    "Give me a name for a small grey cat.",
    "Say hello to a new colleague.",
    "List three things to pack for a walk in the mountains.",
    "Rewrite in the past tense: She goes to school by bus.",
    "What does the word 'bright' mean?",
    "Explain in one sentence why the sky is blue.",
)

TEXT = """\
The lighthouse on the northern point had been dark for eleven years when Ida Moreau came to measure it. She was not \
a sailor and had never lived by the sea; she repaired clocks in a town three hours inland, and the council had \
asked her because the machine that once turned the lamp was, when you took away the salt and the rust, nothing but \
a very large clock. A weight on a chain sank slowly through the tower, and as it sank it drove a train of brass \
wheels, and the wheels carried the lens around once every thirty seconds. At night the keeper had wound it up by \
hand.

She began with what she could count. There were one hundred and forty-two steps, six windows, and four hooks in the \
wall where coats had hung. The chain was missing. So was one of the wheels, the smallest, and without it the others \
could not know how fast they were meant to go. She drew each part in a notebook and wrote its size next to it, \
first in pencil and then, after measuring it a second time, in ink.

On the third day a boy from the village climbed up to see what she was doing. He asked whether the light would work \
again. Ida said that she did not know yet, but that most things which have stopped can be made to go, if you find \
out why they stopped before you start to push. The boy thought about this for a while. Then he told her that his \
grandmother used a small brass wheel to keep her kitchen door open in summer, and that it had always had teeth.
"""
