"""Writes the prompts that the embedded draft was distilled with.

Run `python -m examples.draft_prompts --out prompts.jsonl`. Every prompt is put together from the
words below by a seeded generator, so that the same count gives the same file. The kinds are those
that people ask for: questions, explanations, writing, lists, maths, code, code to complete,
rewriting, summaries, extraction, small talk, role play.
"""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

SEED = 135

TOPICS = """
photosynthesis; black holes; the water cycle; inflation; supply and demand; the French Revolution;
the Roman Empire; plate tectonics; vaccines; the immune system; DNA; evolution; gravity;
electricity; magnets; sound waves; light; the periodic table; acids and bases; combustion;
volcanoes; earthquakes; hurricanes; climate change; renewable energy; solar panels; wind turbines;
nuclear power; batteries; electric cars; bicycles; airplanes; rockets; satellites; the Moon; Mars;
comets; stars; galaxies; time zones; calendars; maps; compasses; the Silk Road; the Renaissance;
the Industrial Revolution; the printing press; the telephone; radio; television; the internet;
computers; operating systems; databases; encryption; passwords; machine learning; neural networks;
robots; drones; video games; chess; football; tennis; swimming; running; yoga; meditation; sleep;
dreams; memory; attention; stress; exercise; nutrition; vitamins; protein; sugar; coffee; tea;
chocolate; bread; cheese; rice; spices; cooking oil; knives; gardening; compost; bees;
butterflies; birds; whales; sharks; elephants; wolves; cats; dogs; horses; trees; forests;
deserts; rivers; oceans; coral reefs; glaciers; rain; snow; fog; rainbows; jazz; classical music;
opera; guitars; pianos; drums; painting; sculpture; photography; film; theatre; poetry; novels;
fairy tales; mythology; philosophy; ethics; logic; democracy; elections; constitutions; taxes;
money; banks; loans; insurance; the stock market; budgets; small businesses; marketing;
negotiation; leadership; teamwork; remote work; job interviews; resumes; public speaking; essays;
grammar; vocabulary; languages; translation; handwriting; libraries; museums; schools;
universities; homework; exams; friendship; families; birthdays; weddings; holidays; travel;
hotels; trains; ships; bridges; skyscrapers; houses; furniture; clocks; glass; paper; plastic;
steel; gold; diamonds; salt; soap; clothes; shoes; hats; umbrellas; fire; first aid; the heart;
the lungs; bones; muscles; skin; eyes; ears; teeth; allergies; the common cold
"""
PLACES = """
Paris; Tokyo; Kyoto; New York; London; Rome; Cairo; Nairobi; Sydney; Lisbon; Berlin; Istanbul;
Mumbai; Bangkok; Mexico City; Lima; Toronto; Reykjavik; Marrakesh; Athens; Vienna; Prague; Dublin;
Seoul; Singapore; Cape Town; Buenos Aires; Oslo; Barcelona; San Francisco; Havana; Venice
"""
NAMES = """
Anna; Ben; Carla; David; Elena; Farid; Grace; Hugo; Ines; Jonas; Kofi; Lena; Maria; Nadia; Omar;
Priya; Quentin; Rosa; Samir; Tara; Uma; Victor; Wei; Yuki; Zoe; Tom; Lucy; Mark; Sarah; Daniel
"""
THINGS = """
apples; oranges; pencils; books; marbles; stickers; cookies; cupcakes; stamps; coins; tickets;
eggs; flowers; bottles; chairs; shirts; candles; balloons; seashells; postcards; toy cars;
buttons; lemons
"""
AUDIENCES = """
a five-year-old; a high school student; a beginner; my grandmother; a busy manager; a curious
reader; a class of ten-year-olds; someone who has never heard of it; an engineer; a tourist
"""
PEOPLE = """
a teacher; a pirate; a detective; a chef; a doctor; a football coach; a medieval knight; a
scientist; a travel guide; a librarian; a stand-up comedian; a wise old wizard; a news reporter; a
gardener; a robot that has just been switched on; an astronaut; a museum guide; a personal
trainer; a poet
"""
ANIMALS = "fox; bear; rabbit; owl; turtle; mouse; cat; dragon; sparrow; whale; hedgehog; lion; frog"
MOODS = "funny; sad; hopeful; mysterious; exciting; calm; scary; romantic; surprising; inspiring"
TONES = "formal; friendly; simple; persuasive; polite; enthusiastic; concise; professional; neutral"
DISHES = """
pancakes; tomato soup; a vegetable curry; spaghetti; an apple pie; fried rice; a green salad;
tacos; banana bread; an omelette; lentil soup; roast chicken; pizza dough; hummus; chocolate chip
cookies
"""
PRODUCTS = """
a reusable water bottle; noise-cancelling headphones; a language learning app; a folding bicycle;
organic dog food; a smart lamp; a hiking backpack; a meal kit; an online course; a standing desk
"""
EVENTS = """
a birthday party; a team meeting; a wedding; a school trip; a book club; a garage sale; a picnic;
a job interview; a charity run; a housewarming; a product launch; a family reunion; a concert
"""
SKILLS = """
learn to play the guitar; save money; sleep better; write a good essay; start running; learn
Spanish; give a speech; grow tomatoes; study for an exam; make new friends; cook healthy meals;
draw faces; stay focused; start a small business; plan a trip; read more books; learn to code; fix
a flat tire
"""
LANGUAGES = "Python; Python; Python; JavaScript; Java; C++; SQL; Bash; HTML; Go; Rust; TypeScript"
TASKS = """
reverses a string; checks whether a number is prime; computes the factorial of a number; sorts a
list of numbers without the built-in sort; counts the words in a text; finds the largest number in
a list; removes duplicates from a list; checks whether a word is a palindrome; merges two sorted
lists; computes the nth Fibonacci number; counts the vowels in a string; converts Celsius to
Fahrenheit; finds the second largest number in a list; computes the average of a list; flattens a
nested list; checks whether two strings are anagrams; finds the longest word in a sentence; adds
two matrices; computes the greatest common divisor of two numbers; converts a number to binary;
rotates a list by k places; finds the missing number in a list from 1 to n; implements binary
search; implements a stack; implements a queue with two stacks; implements bubble sort; implements
a linked list; validates an email address; parses a date such as 2024-05-17; reads a CSV file and
prints the total of a column; counts how often each character occurs; capitalizes the first letter
of each word; generates a random password; sums the digits of a number; finds all even numbers in
a list; groups words by their length; checks whether brackets are balanced; finds the intersection
of two lists; computes compound interest; prints a multiplication table; draws a triangle of
stars; finds the shortest path in a grid; counts the lines of a file; measures how long a function
takes; downloads a web page; writes a log file
"""
FUNCTIONS = """
def add_all(numbers: list[int]) -> int:|Return the sum of all numbers in the list.
def is_even(n: int) -> bool:|Return True if n is even, and False otherwise.
def count_words(text: str) -> int:|Return how many words the text has, separated by spaces.
def longest(strings: list[str]) -> str:|Return the longest string of the list.
def clamp(value: float, low: float, high: float) -> float:|Keep value between low and high.
def unique(items: list) -> list:|Return the items without duplicates, in order.
def to_binary(n: int) -> str:|Return the binary digits of n as a string.
def gcd(a: int, b: int) -> int:|Return the greatest common divisor of a and b.
def is_prime(n: int) -> bool:|Return True if n is a prime number.
def reverse_words(sentence: str) -> str:|Return the sentence with its words in reverse order.
def mean(values: list[float]) -> float:|Return the arithmetic mean of the values.
def median(values: list[float]) -> float:|Return the middle value of the sorted values.
def fibonacci(n: int) -> list[int]:|Return the first n Fibonacci numbers.
def flatten(nested: list[list[int]]) -> list[int]:|Return all numbers in one list.
def char_count(text: str) -> dict[str, int]:|Return how often each character occurs.
def remove_vowels(text: str) -> str:|Return the text without its vowels.
def is_palindrome(text: str) -> bool:|Return True if the text reads the same backwards.
def second_largest(values: list[int]) -> int:|Return the second largest of the values.
def running_total(values: list[int]) -> list[int]:|Return the sum of the values so far, for each.
def merge(a: list[int], b: list[int]) -> list[int]:|Merge two sorted lists into one sorted list.
def chunks(items: list, size: int) -> list[list]:|Split the items into lists of the given size.
def title_case(text: str) -> str:|Return the text with the first letter of each word capitalized.
def digits_sum(n: int) -> int:|Return the sum of the decimal digits of n.
def common(a: list, b: list) -> list:|Return the items that are in both lists, sorted.
def rotate(items: list, k: int) -> list:|Rotate the items by k places to the right.
def transpose(matrix: list[list[int]]) -> list[list[int]]:|Return rows as columns.
def factorial(n: int) -> int:|Return the product of all numbers from 1 to n.
def caesar(text: str, shift: int) -> str:|Shift every letter by so many places.
def positive(values: list[float]) -> list[float]:|Return only the values above zero.
def distance(x1: float, y1: float, x2: float, y2: float) -> float:|Return their distance.
"""
SUBJECTS = """
The town council; A small bakery on the corner; The old lighthouse; My neighbour's dog; The new
library; A group of students; The football team; Our research group; The city museum; A retired
teacher; The night train; The company; A young painter; The village school; The weather service; A
local farmer; The hospital; An international team of scientists; The orchestra; The river
"""
ACTS = """
opened its doors to visitors for the first time in ten years; announced a plan that surprised
nearly everyone; won a prize that nobody had expected; was closed for repairs after the heavy
storm; found a letter that had been lost for decades; decided to change the way things had always
been done; raised enough money to start a new project; had to move to a larger place because so
many people came; published the results of a long study; lost its way in the fog but arrived
safely in the end; was praised by the newspapers; learned an important lesson about patience;
started to work with volunteers from the whole region; celebrated its anniversary with music and
food
"""
LINKS = """
Many people said that they were happy about it.; Not everyone agreed, however.; The reason was
simple.; It cost about {n} thousand dollars.; More than {n} people took part.; This happened in
{year}.; At first, nothing seemed to change.; The work took {n} months.; Experts had warned about
it before.; {name} said that it was a good day for the community.; In {place}, something similar
happened last year.; The next step will follow in spring.; Nobody knows yet what will come next.;
It was a quiet morning, and the streets were still empty.; For {name}, it was a dream come true.;
In the end, it was worth the effort.; There are still a few open questions.; The idea came from
{name}, who lives nearby.
"""
CHANGES = """
Rewrite the following text in a more {tone} style:; Correct any mistakes in the following text:;
Rewrite the following paragraph so that it is shorter:; Repeat the following text word for word:;
Paraphrase the following paragraph:; Rewrite the following text in the past tense:; Rewrite the
following text as a letter to a friend:; Make the following text easier to read:; Rewrite the text
below and replace every name by "Alex":; Turn the following text into a list of bullet points:;
Edit the following paragraph for clarity:; Copy the following text and add one sentence at the
end:
"""
ASKS = """
Summarize the following text in one sentence:; Summarize the following text in three bullet
points:; What is the main idea of this text?; Write a headline for this text:; List the people and
places that are named in the following text:; List all numbers in the following text:; Write three
questions about the following text:; Is the following text positive or negative? Explain your
answer.; Extract the key facts from this text as JSON:; Give the following text a title and three
keywords:
"""
FOLLOW_UPS = """
Can you make it shorter?; Explain that in simpler words.; Give me an example.; Now write it as a
poem.; Why is that so?; Rewrite your answer as a list.; Thank you! What should I read next?; Can
you say more about the second point?; Translate your answer into Spanish.; What are the
disadvantages?; Rewrite your last answer without using any numbers.; How would you explain it to a
child?; Are you sure?
"""


def _words(text: str) -> list[str]:
    return [" ".join(word.split()) for word in text.split(";")]


class Writer:
    """One prompt after the other, from one source of chance."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._of = {
            name.lower(): _words(value)
            for name, value in globals().items()
            if name.isupper() and isinstance(value, str)
        }
        self._functions = [line.split("|") for line in FUNCTIONS.strip().splitlines()]
        self._kinds: list[tuple[int, Callable[[], str]]] = [
            (16, self._question),
            (12, self._explanation),
            (14, self._writing),
            (12, self._list),
            (12, self._maths),
            (10, self._code),
            (10, self._rewriting),
            (6, self._reading),
            (5, self._talk),
            (6, self._role),
        ]

    def line(self) -> dict[str, object]:
        """A prompt as a line of the file: chats have `turns`, code to complete has `prompt`."""
        if self._random.random() < 0.04:
            return {"prompt": self._completion()}
        weights = [weight for weight, _ in self._kinds]
        kind = self._random.choices(self._kinds, weights)[0][1]
        turns = [kind()]
        if self._random.random() < 0.2:
            turns.append(self._a("follow_ups"))
        return {"turns": turns}

    def _a(self, name: str) -> str:
        return self._random.choice(self._of[name])

    def _number(self, low: int = 2, high: int = 60) -> int:
        return self._random.randint(low, high)

    def _one(self, *forms: str) -> str:
        form = self._random.choice(forms)
        return form.format(
            topic=self._a("topics"),
            other=self._a("topics"),
            place=self._a("places"),
            name=self._a("names"),
            friend=self._a("names"),
            thing=self._a("things"),
            audience=self._a("audiences"),
            person=self._a("people"),
            animal=self._a("animals"),
            mood=self._a("moods"),
            tone=self._a("tones"),
            dish=self._a("dishes"),
            product=self._a("products"),
            event=self._a("events"),
            skill=self._a("skills"),
            language=self._a("languages"),
            task=self._a("tasks"),
            n=self._number(),
            m=self._number(2, 12),
            few=self._number(3, 7),
            big=self._number(100, 900),
            percent=5 * self._number(1, 19),
            year=self._number(1850, 2020),
        )

    def _question(self) -> str:
        return self._one(
            "What is {topic}?",
            "How does {topic} work?" if self._random.random() < 0.5 else "Tell me about {topic}.",
            "Why is {topic} important?",
            "What is the difference between {topic} and {other}?",
            "What are the advantages and disadvantages of {topic}?",
            "Who invented {topic}, and when?",
            "How has {topic} changed over the last hundred years?",
            "What happened in {place} in {year}?",
            "What should I see in {place} if I have only {few} days?",
            "How do I make {dish}?",
            "How can I {skill}?",
            "Is it a good idea to {skill} every day?",
            "What is the capital of the country in which {place} lies?",
            "What do most people get wrong about {topic}?",
            "How are {topic} and {other} related?",
            "What would the world look like without {topic}?",
        )

    def _explanation(self) -> str:
        return self._one(
            "Explain {topic} to {audience}.",
            "Explain {topic} in {few} sentences.",
            "Describe {topic} in your own words.",
            "Give a short introduction to {topic}.",
            "Compare {topic} and {other}.",
            "Explain step by step how to {skill}.",
            "Describe the history of {topic}.",
            "Explain the science behind {topic} with an example from daily life.",
            "What are the causes and effects of {topic}? Answer in detail.",
            "Discuss the role of {topic} in modern society.",
            "Define {topic} and give {few} examples.",
        )

    def _writing(self) -> str:
        return self._one(
            "Write a short story about a {animal} who wants to {skill}.",
            "Write a {mood} story that takes place in {place}.",
            "Write a poem about {topic}.",
            "Write a haiku about {topic}.",
            "Write a {tone} email to {name} about {event}.",
            "Write a letter to my landlord about {topic}.",
            "Write a blog post about {topic} for {audience}.",
            "Write an essay of about {big} words on {topic}.",
            "Write a product description for {product}.",
            "Write a {mood} dialogue between {person} and {person} about {topic}.",
            "Write a short speech for {event}.",
            "Write an invitation to {event} in {place}.",
            "Write a review of a restaurant in {place} that serves {dish}.",
            "Describe a {mood} morning in {place}.",
            "Write the first paragraph of a {mood} novel about {topic}.",
            "Write a slogan and a short advertisement for {product}.",
            "Write a thank-you note to {name} for {event}.",
            "Tell me a {mood} story about {name} and {friend}.",
            "Write a song about {topic} with two verses and a chorus.",
            "Write a travel blog post about a trip to {place}.",
        )

    def _list(self) -> str:
        return self._one(
            "List {few} facts about {topic}.",
            "Give me {few} tips to {skill}.",
            "List {few} reasons why {topic} matters.",
            "Name {few} things to do in {place}.",
            "Suggest {few} names for a {animal}.",
            "Make a shopping list for {dish}.",
            "Make a checklist for {event}.",
            "Create a weekly plan to {skill}.",
            "List the steps to organize {event}.",
            "Give {few} ideas for a story about {topic}.",
            "List the pros and cons of {topic}.",
            "Generate {few} questions about {topic} for a quiz, with answers.",
            "Suggest {few} gifts for {audience}.",
            "Give me {few} synonyms for the word '{mood}' and use each in a sentence.",
            "Make a table of {few} kinds of {topic} with a short description of each.",
            "List {few} books about {topic}.",
        )

    def _maths(self) -> str:
        return self._one(
            "{name} has {n} {thing}. {friend} has {m} times as many. How many are that together?",
            "{name} buys {n} {thing} for ${m} each and pays with ${big}. How much change is left?",
            "A train travels {big} miles in {m} hours. What is its average speed?",
            "What is {n} + {big}?",
            "What is {n} times {m}?",
            "What is {percent}% of {big}?",
            "Solve for x: {m}x + {n} = {big}.",
            "A rectangle is {n} cm long and {m} cm wide. What are its area and its perimeter?",
            "A shop sells {big} {thing} in {m} days. How many is that per day on average?",
            "{name} reads {n} pages a day. How long does a book of {big} pages take?",
            "A shirt costs ${n}. It is reduced by {percent}%. What is the new price?",
            "{name} had {big} {thing}, gave {n} to {friend} and lost {m}. How many are left?",
            "There are {n} rows of {m} seats. {percent}% are taken. How many seats are free?",
            "{name} earns ${n} an hour and works {m} hours a day, {few} days a week. How much does "
            "{name} earn in a week? Think step by step.",
            "The sum of two numbers is {big} and their difference is {n}. What are the numbers?",
            "What is the next number in the sequence {m}, {n}, {big}? Explain your reasoning.",
            "{name} is {m} years older than {friend}. Together they are {n} years old. How old is "
            "each of them?",
            "A recipe for {few} people needs {m} cups of flour. How many cups do {n} people need?",
        )

    def _code(self) -> str:
        return self._one(
            "Write a {language} function that {task}.",
            "Write a {language} program that {task}.",
            "Write a Python function that {task}, and explain how it works.",
            "How do I write {language} code that {task}?",
            "Write a Python function that {task}. Include a docstring and an example.",
            "Write a Python class for {product} with a few useful methods.",
            "Write an HTML page about {topic}.",
            "What is the difference between a list and a tuple in Python?",
            "Explain what this {language} error could mean: index out of range.",
            "Write unit tests for a Python function that {task}.",
            "Write a SQL query that lists the {few} customers with the largest orders in {year}.",
        )

    def _completion(self) -> str:
        signature, doc = self._random.choice(self._functions)
        opening = self._random.choice(["", "from typing import List\n\n\n", "import math\n\n\n"])
        return f'{opening}{signature}\n    """{doc}\n    """\n'

    def _text(self) -> str:
        sentences = [f"{self._a('subjects')} {self._a('acts')}."]
        sentences += [self._one(self._a("links")) for _ in range(self._random.randint(1, 4))]
        if self._random.random() < 0.5:
            sentences.append(f"{self._a('subjects')} {self._a('acts')}.")
        return " ".join(sentences)

    def _rewriting(self) -> str:
        return f"{self._one(self._a('changes'))}\n\n{self._text()}"

    def _reading(self) -> str:
        return f"{self._a('asks')}\n\n{self._text()}"

    def _talk(self) -> str:
        return self._one(
            "Hello! How are you today?",
            "Hi, I'm {name}. Can you help me with {topic}?",
            "I'm bored. What can I do in {place}?",
            "I feel tired and can't concentrate. What should I do?",
            "Tell me a joke about {topic}.",
            "What do you think about {topic}?",
            "I have to prepare {event} until tomorrow. Where do I begin?",
            "My friend {name} doesn't talk to me any more. What can I do?",
            "Recommend me something to read about {topic}.",
            "I'm planning a trip to {place} with {name}. Any advice?",
            "Good morning! Tell me something interesting about {topic}.",
        )

    def _role(self) -> str:
        return self._one(
            "Imagine you are {person}. Explain {topic}.",
            "You are {person}. A visitor asks you about {topic}. What do you say?",
            "Act as {person} and give me advice on how to {skill}.",
            "Pretend to be {person} who lives in {place}. Describe your day.",
            "Write a diary entry of {person} who discovers {topic}.",
            "Answer like {person}: why should I care about {topic}?",
        )


def main() -> None:
    """Write `--count` different prompts to `--out`, one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    writer = Writer(SEED)
    lines: dict[str, None] = {}
    while len(lines) < args.count:
        lines[json.dumps(writer.line())] = None
    args.out.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
