"""English words and sentences of the demo corpus. Slots in braces are filled by corpus.py."""

CHILDREN = ["girl", "boy"]
GIRLS = ("Lily Mia Emma Nora Ruby Anna Rose Ella Lucy Clara Ivy Zoe Maya Jane Alice Daisy Hazel Eva Tina Wendy").split()
BOYS = ("Tom Ben Sam Max Leo Jack Finn Noah Oscar Hugo Theo Paul Adam Felix Henry Peter Oliver Simon Toby Luke").split()
ANIMALS = ("rabbit fox bear mouse hedgehog squirrel otter owl badger duck").split()
PET_NAMES = ("Pip Momo Nibbles Bruno Coco Biscuit Patch Willow Maple Bramble Tilly Rusty").split()
PLACES = ("forest village farm harbour valley castle garden market island meadow school library mountain beach mill "
          "town park orchard bakery lighthouse").split()
# "in" unless said otherwise.
PLACE_PREPOSITIONS = {"farm": "on", "island": "on", "mountain": "on", "beach": "at", "mill": "at", "lighthouse": "at",
                      "market": "at", "bakery": "at", "school": "at", "library": "at"}
HELPER_ROLES = ("baker farmer sailor teacher miller doctor gardener painter fisherman shepherd").split()
ADJECTIVES = "kind small brave quiet curious clever cheerful gentle".split()
TIMES = ["One morning", "One evening", "One sunny day", "One cold day", "One rainy day", "One spring morning",
         "One quiet afternoon", "One windy day"]
FEELINGS = "happy proud thankful calm glad excited".split()
COLOURS = "red blue green yellow white golden".split()

FIND_THINGS = "kitten key hat ball book ring puppy map drum whistle".split()
FIND_SPOTS = ["under a bench", "behind a rock", "in an old basket", "near the well", "under a bush", "beside a gate"]
FIND_PROBLEMS = [
    ("it was too dark to see", "{helper} brought a bright lamp"),
    ("the grass was too tall", "{helper} cut a path through the grass"),
    ("a deep hole was in the way", "{helper} laid a long board over the hole"),
    ("thick fog covered everything", "{helper} rang a bell and led the way"),
]
MAKE_FOODS = "cake soup pie bread jam".split()
MAKE_FOOD_NEEDS = "flour salt milk honey butter eggs".split()
MAKE_CRAFTS = "kite boat chair scarf lantern flute".split()
MAKE_CRAFT_NEEDS = "rope wood cloth paper glue paint".split()
REACH_THINGS = "apple balloon kite bell flag feather".split()
REACH_FROM = "tree roof tower wall".split()
REACH_PROBLEMS = [
    ("it was much too high", "{helper} came with a long ladder"),
    ("the wind was too strong", "{helper} held the ladder very tight"),
    ("the ladder was broken", "{helper} lifted {obj} up on strong shoulders"),
]
VISIT = "grandmother uncle aunt cousin grandfather teacher".split()
VISIT_PROBLEMS = [
    ("the bridge was broken", "{helper} rowed {obj} across in a small boat"),
    ("the snow was too deep", "{helper} pulled {obj} along on a sled"),
    ("the road was flooded", "{helper} showed {obj} a path over the hill"),
    ("a big tree blocked the road", "{helper} pushed the tree aside with a cart"),
]
LEARN = ["swim", "ride a bike", "dance", "play the drum", "skate", "sing", "paint", "climb", "read", "juggle"]
LEARN_PROBLEMS = [
    ("{subj} was afraid of falling", "{helper} held {poss} hand and they tried again"),
    ("{subj} kept making mistakes", "{helper} showed {obj} one small step at a time"),
    ("nobody had time to teach {obj}", "{helper} gave {obj} a lesson every day"),
]
HELP_ANIMALS = "bird lamb duckling pony turtle cat".split()
HELP_STATES = [
    ("hurt", "there was no bandage", "{helper} brought a soft bandage"),
    ("hungry", "there was nothing to eat", "{helper} shared a bowl of warm milk"),
    ("cold", "there was no blanket", "{helper} brought a thick blanket"),
    ("lost", "nobody knew the way", "{helper} drew a little map"),
]
LESSONS = ["a friend makes hard things easy", "it is good to ask for help", "kind words open many doors",
           "small steps lead far", "sharing makes everyone rich", "brave hearts try again"]

OPENINGS = [
    "Once upon a time there was {article_adj} {who} named {name}. {Subj} lived {at} the {place}.",
    "{At} the {place} lived {article_adj} {who} named {name}.",
    "Once there was {article_adj} {who} who lived {at} the {place}. {Poss} name was {name}.",
    "{name} was {article_adj} {who} from the {place}.",
    "Long ago, {article_adj} {who} named {name} lived {at} the {place}.",
]
WISHES = ["{time}, {name} wanted to {wish}.", "More than anything, {name} wanted to {wish}.",
          "{name} had one wish: to {wish}.", "{time}, {name} said, \"I want to {wish_i}.\""]
PROBLEMS = ["But {problem}.", "But there was a problem: {problem}.", "{Subj} tried and tried, but {problem}.",
            "Sadly, {problem}."]
MEETINGS = ["{name} sat down and sighed. Then {subj} met {helper}.", "Just then {helper} came by.",
            "\"Can you help me?\" {name} asked {helper}.", "{name} went to look for {helper} and told everything.",
            "Then {helper} heard {obj} and came closer."]
OFFERS = ["\"Do not worry,\" said {helper_short}. \"We will do it together.\"", "\"I can help you,\" said {helper_short}.",
          "{Helper_short} smiled and thought for a while.", "\"I have an idea,\" said {helper_short}."]
SOLUTIONS = ["So {solution}.", "Soon {solution}.", "Without a word, {solution}."]
RESULTS = {
    "find": ["At last they found the {thing} {spot}.", "There was the {thing}, {spot}!"],
    "make": ["Together they made a fine {thing}.", "Soon the {thing} was ready, and it was the best {at} the {place}."],
    "reach": ["At last {name} held the {colour} {thing} in {poss} hands.", "Down came the {colour} {thing}!"],
    "visit": ["That evening {name} hugged {poss} {thing} at the door.", "{Poss} {thing} was waiting with warm tea."],
    "learn": ["After a while {name} could {thing} very well.", "Soon everyone came to see {name} {thing}."],
    "help": ["The {thing} felt better and stayed close to {name}.", "Soon the {thing} was well and full of joy."],
}
ENDINGS = ["{name} was {feeling}.", "{name} felt {feeling}.", "In the end {name} was very {feeling}."]
MORALS = ["{Subj} learned that {lesson}.", "And so {subj} knew that {lesson}.", "From that day on {subj} remembered: {lesson}."]

STORY_REQUESTS = ["Tell me a story about a {who} named {name} who wants to {wish_they}.",
                  "Write a short story: {name}, a {who} {at} the {place}, wants to {wish_they}.",
                  "I would like a story about {name} the {who}. It happens {at} the {place}.",
                  "Please tell a story about a {who} named {name} {at} the {place} who wants to {wish_they}."]
OPEN_REQUESTS = ["Tell me a story.", "Please tell me a short story.", "Can you tell me a story?", "I want to hear a story.",
                 "Write a little story."]
PLACE_REQUESTS = ["Tell me a story about the {place}.", "Tell me a story about a {who}.",
                  "A story with a {who}, please."]

EXTRACT_REQUESTS = ["Extract the facts of this story as JSON.", "Give the facts as JSON.",
                    "Read the story and write its facts as JSON.", "Turn this story into JSON."]
QUESTION_REQUESTS = ["Read the story and answer the question.", "Here is a story.", "Answer a question about this story."]
QUESTIONS = {
    "name": [("What is the name of the {who}?", "The name of the {who} is {name}."),
             ("Who is the story about?", "The story is about {name}.")],
    "place": [("Where does {name} live?", "{name} lives {at} the {place}."),
              ("Where does the story happen?", "It happens {at} the {place}.")],
    "wish": [("What does {name} want?", "{name} wants to {wish}."), ("What is the wish of {name}?", "{name} wants to {wish}.")],
    "problem": [("What is the problem?", "The problem is that {problem}."), ("What goes wrong?", "The problem is that {problem}.")],
    "helper": [("Who helps {name}?", "{Helper} helps {name}."), ("Who is the helper?", "{Helper} helps {name}.")],
    "feeling": [("How does {name} feel at the end?", "{name} feels {feeling}."),
                ("Is {name} {other_feeling} or {feeling} at the end?", "{name} feels {feeling}.")],
}

JOBS = {"baker": "bread", "sailor": "ships", "gardener": "flowers", "painter": "pictures", "teacher": "books",
        "farmer": "apples", "miller": "flour", "fisherman": "nets", "doctor": "medicine", "musician": "songs"}
HOBBIES = ["singing", "fishing", "reading", "dancing", "cooking", "painting", "walking", "chess"]
FOODS = ["soup", "pancakes", "rice", "apples", "honey", "cheese", "noodles", "cake"]
PETS = ["cat", "dog", "parrot", "pony", "rabbit", "turtle"]

PERSONAS = ["You are {name}, a {job} {at} the {place}. You like {hobby}. Your favourite food is {food}. You have a {pet}.",
            "You are {name}. You work as a {job} {at} the {place}. You like {hobby} and {food}. Your pet is a {pet}."]
CHAT = {
    "name": [("What is your name?", ["My name is {name}.", "I am {name}."]), ("Who are you?", ["I am {name}, a {job}."])],
    "job": [("What do you do?", ["I am a {job}. I work with {work} every day."]),
            ("What is your job?", ["I am a {job}."])],
    "place": [("Where do you live?", ["I live {at} the {place}."]), ("Where do you work?", ["I work {at} the {place}."])],
    "hobby": [("What do you like to do?", ["I like {hobby}."]), ("Do you have a hobby?", ["Yes, I like {hobby}."])],
    "food": [("What do you like to eat?", ["I love {food}."]), ("What is your favourite food?", ["My favourite food is {food}."])],
    "pet": [("Do you have a pet?", ["Yes, I have a {pet}."]), ("What animal do you have?", ["I have a {pet}."])],
}
# Talk that needs no persona; the second list is for a persona, whose name may be used.
TALK = [
    (["Hello!", "Hi!", "Hello there."], ["Hello! How can I help you?", "Hi! What can I do for you?"]),
    (["Good morning!", "Good morning."], ["Good morning! Did you sleep well?", "Good morning to you!"]),
    (["Good night.", "Good night!"], ["Good night! Sleep well.", "Good night and sweet dreams."]),
    (["How are you?", "How are you today?"], ["I am fine, thank you. And you?", "Very well, thank you!"]),
    (["I am fine.", "I feel good today."], ["I am glad to hear that.", "That is good news!"]),
    (["I am sad.", "I feel sad today."], ["I am sorry. Do you want to hear a story?", "I am sorry to hear that. I am here for you."]),
    (["I am tired."], ["Then take a little rest.", "A short sleep may help you."]),
    (["I am bored."], ["Shall I tell you a story?", "We could count or tell stories."]),
    (["Thank you!", "Thanks a lot!", "Thank you very much."], ["You are welcome!", "It was a pleasure."]),
    (["Goodbye!", "Bye!", "See you later."], ["Goodbye! See you soon.", "Bye! Have a nice day."]),
    (["Tell me a joke.", "Do you know a joke?"], ["What do you call a sleeping bull? A bulldozer!", "Why did the book go to the doctor? It had too many words!"]),
    (["What is your favourite colour?"], ["I like blue, like the water of a mill.", "Blue, I think."]),
    (["It is raining today."], ["Then take an umbrella with you.", "Rain is good for the flowers."]),
    (["The sun is shining."], ["How nice! Let us enjoy the day.", "A good day for a walk!"]),
]
SELF = [
    (["What is your name?", "Who are you?", "What are you?"], ["I am Millrace, a very small language model.", "My name is Millrace. I am a small language model."]),
    (["What can you do?", "How can you help me?"], ["I can tell stories, answer questions about them, count a little, call tools and chat.",
                                                    "I tell stories, chat, count with small numbers and call tools."]),
    (["Who made you?", "Where do you come from?"], ["The Millrace project trained me on a small computer.", "I come from the Millrace project."]),
    (["How old are you?"], ["I am very young. I am only a small model."]),
    (["Are you a human?", "Are you a robot?"], ["No, I am a small language model."]),
    (["Do you speak Chinese?", "Can you speak Chinese?"], ["Yes, I speak English and Chinese."]),
]
INTRODUCTIONS = ["My name is {user}.", "I am {user}.", "Hello, I am {user}."]
GREETINGS = ["Nice to meet you, {user}!", "Hello, {user}! How can I help you?"]
NAME_QUESTIONS = ["What is my name?", "Do you know my name?"]
NAME_ANSWERS = ["Your name is {user}."]

COUNT_THINGS = "apples books cakes eggs balls shells flowers coins stones nuts".split()
SUMS = ["What is {a} {op} {b}?", "{a} {op} {b} = ?", "How much is {a} {op} {b}?", "Calculate {a} {op} {b}."]
WORD_ADD = "{name} has {a} {things}. {other} gives {name} {b} more. How many {things} does {name} have now?"
WORD_SUB = "{name} has {a} {things}. {name} gives {other} {b}. How many {things} are left?"
WORD_MUL = "{name} has {a} boxes with {b} {things} each. How many {things} are there?"
WORD_ANSWERS = ["{a} {op} {b} = {c}. {name} has {c} {things}.", "{a} {op} {b} = {c}. {c} {things} are left.",
                "{a} {op} {b} = {c}. There are {c} {things}."]

REPEATS = ["Repeat: {words}", "Say after me: {words}", "Write again: {words}"]

CITIES = "Paris London Berlin Rome Madrid Tokyo Oslo Cairo Lima Boston Vienna Dublin Beijing Shanghai".split()
WEATHER = ["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"]
SYSTEMS = ["You are a helpful assistant.", "You are Millrace, a small assistant.", "You help with tools."]
TOOL_TEXTS = {"get_weather": "Tell the weather in a city.", "set_timer": "Set a timer.",
              "calculate": "Calculate with numbers.", "send_message": "Send a message to a person."}
ASK = {
    "get_weather": ["What is the weather in {city}?", "How is the weather in {city} today?", "Is it raining in {city}?",
                    "Tell me the weather in {city}."],
    "set_timer": ["Set a timer for {minutes} minutes.", "Wake me in {minutes} minutes.", "Please set a timer: {minutes} minutes."],
    "calculate": ["Calculate {a} {op} {b}.", "What is {a} {op} {b}?", "How much is {a} {op} {b}?"],
    "send_message": ["Tell {person} that {message}.", "Send {person} a message: {message}.", "Write to {person}: {message}."],
}
MESSAGES = ["dinner is ready", "I am late", "the train is here", "I am home", "the cake is good", "we meet at the market",
            "it is raining", "the book is here"]
TOOL_REPLIES = {
    "get_weather": ["It is {weather} in {city}, {degrees} degrees."],
    "set_timer": ["The timer is set for {minutes} minutes."],
    "calculate": ["The result is {c}."],
    "send_message": ["I have sent your message to {person}."],
}
NO_TOOL = ["Sorry, I have no tool for that."]
