"""Chinese words and sentences of the demo corpus: the same shape as lexicon_en.py."""

CHILDREN = ["女孩", "男孩"]
GIRLS = "小红 小兰 小美 小云 小雪 小花 小雨 小梅 小玉 小静 小芳 小月".split()
BOYS = "小明 小刚 小强 小龙 小军 小勇 小亮 小山 小海 小华 小东 小林".split()
ANIMALS = "兔子 狐狸 小熊 老鼠 刺猬 松鼠 水獭 小鸭".split()
PET_NAMES = "豆豆 毛毛 点点 球球 花花 乐乐 贝贝 团团".split()
PLACES = "森林 村子 农场 港口 山谷 城堡 花园 市场 小岛 草地 学校 图书馆 山上 海边 磨坊 小镇".split()
HELPER_ROLES = "面包师 农夫 水手 老师 磨坊主 医生 园丁 画家 渔夫 牧羊人".split()
ADJECTIVES = "善良 勇敢 安静 好奇 聪明 快活 温和".split()
TIMES = ["一天早上", "一天晚上", "一个晴天", "一个雨天", "一个春天的早上", "一个安静的下午"]
FEELINGS = "高兴 自豪 感激 平静 快乐 激动".split()
COLOURS = "红色 蓝色 绿色 黄色 白色".split()

FIND_THINGS = "小猫 钥匙 帽子 皮球 书 戒指 小狗 地图".split()
FIND_SPOTS = ["在长椅下面", "在石头后面", "在旧篮子里", "在水井旁边", "在门边"]
FIND_PROBLEMS = [
    ("天太黑看不见", "{helper}拿来了一盏灯"),
    ("草长得太高", "{helper}在草里开了一条路"),
    ("路上有一个深坑", "{helper}在坑上放了一块木板"),
    ("到处都是大雾", "{helper}摇着铃带路"),
]
MAKE_FOODS = "蛋糕 汤 馅饼 面包".split()
MAKE_FOOD_NEEDS = "面粉 盐 牛奶 蜂蜜 鸡蛋".split()
MAKE_CRAFTS = "风筝 小船 椅子 围巾 灯笼".split()
MAKE_CRAFT_NEEDS = "绳子 木头 布 纸 胶水".split()
REACH_THINGS = "苹果 气球 风筝 铃铛 旗子".split()
REACH_FROM = "树 屋顶 塔 墙".split()
REACH_PROBLEMS = [
    ("它太高了", "{helper}搬来了长梯子"),
    ("风太大了", "{helper}紧紧扶住梯子"),
    ("梯子坏了", "{helper}把{obj}举了起来"),
]
VISIT = "奶奶 叔叔 阿姨 表哥 爷爷 老师".split()
VISIT_PROBLEMS = [
    ("桥断了", "{helper}划船送{obj}过河"),
    ("雪太深了", "{helper}用雪橇拉着{obj}走"),
    ("路被水淹了", "{helper}带{obj}走山上的小路"),
    ("大树挡住了路", "{helper}用车把树推开"),
]
LEARN = ["游泳", "骑车", "跳舞", "打鼓", "滑冰", "唱歌", "画画", "读书"]
LEARN_PROBLEMS = [
    ("{subj}害怕摔倒", "{helper}牵着{poss}手一次次地试"),
    ("{subj}总是出错", "{helper}一步一步地教{obj}"),
    ("没有人有时间教{obj}", "{helper}每天给{obj}上课"),
]
HELP_ANIMALS = "小鸟 小羊 小马 乌龟 小牛".split()
HELP_STATES = [
    ("受伤", "没有绷带", "{helper}拿来了软软的绷带"),
    ("饥饿", "没有吃的", "{helper}分了一碗热牛奶"),
    ("寒冷", "没有毯子", "{helper}拿来了厚毯子"),
    ("迷路", "没有人认识路", "{helper}画了一张小地图"),
]
LESSONS = ["朋友让难事变容易", "请人帮忙是好事", "好话能打开许多门", "一小步也能走很远", "分享使大家富有"]

OPENINGS = [
    "从前有一{measure}{adj}的{who}，名叫{name}。{subj}住在{place}。",
    "在{place}住着一{measure}{adj}的{who}，名叫{name}。",
    "{place}里有一{measure}{adj}的{who}，{poss}名字叫{name}。",
    "{name}是一{measure}{adj}的{who}，家在{place}。",
]
WISHES = ["{time}，{name}想{wish}。", "{name}最大的愿望是{wish}。", "{time}，{name}说：“我想{wish}。”"]
PROBLEMS = ["可是{problem}。", "但是有一个问题：{problem}。", "{subj}试了又试，可是{problem}。"]
MEETINGS = ["{name}坐下来叹气，这时{subj}遇见了{helper}。", "就在这时，{helper}来了。", "“你能帮我吗？”{name}问{helper}。",
            "{name}去找{helper}，说了这件事。"]
OFFERS = ["“别担心，”{helper}说，“我们一起来。”", "“我可以帮你。”{helper}说。", "{helper}笑了笑，想了一会儿。", "“我有办法。”{helper}说。"]
SOLUTIONS = ["于是{solution}。", "很快，{solution}。"]
RESULTS = {
    "find": ["最后他们找到了{thing}，它{spot}。", "{thing}就{spot}！"],
    "make": ["他们一起做好了{thing}。", "很快{thing}做好了，是{place}最好的。"],
    "reach": ["最后{name}拿到了{colour}的{thing}。", "{colour}的{thing}下来了！"],
    "visit": ["那天晚上，{name}抱住了{poss}{thing}。", "{poss}{thing}正准备好热茶等着。"],
    "learn": ["不久，{name}学会了{thing}。", "很快大家都来看{name}{thing}。"],
    "help": ["{thing}好多了，一直跟着{name}。", "很快{thing}就好了，非常快活。"],
}
ENDINGS = ["{name}很{feeling}。", "{name}感到{feeling}。", "最后{name}非常{feeling}。"]
MORALS = ["{subj}明白了：{lesson}。", "从那以后，{subj}记住了：{lesson}。"]

STORY_REQUESTS = ["讲一个故事：{who}{name}想{wish}。", "写一个短故事，{name}是{place}的{who}，想{wish}。",
                  "我想听{who}{name}的故事，发生在{place}。"]
OPEN_REQUESTS = ["讲一个故事。", "请给我讲个故事。", "我想听故事。", "写一个小故事。"]
PLACE_REQUESTS = ["讲一个{place}的故事。", "讲一个{who}的故事。"]

EXTRACT_REQUESTS = ["把这个故事的要点写成JSON。", "用JSON给出要点。", "读故事，把要点写成JSON。"]
QUESTION_REQUESTS = ["读故事，回答问题。", "这里有一个故事。", "请回答这个故事的问题。"]
QUESTIONS = {
    "name": [("故事里的{who}叫什么名字？", "{who}的名字叫{name}。"), ("故事讲的是谁？", "故事讲的是{name}。")],
    "place": [("{name}住在哪里？", "{name}住在{place}。"), ("故事发生在哪里？", "故事发生在{place}。")],
    "wish": [("{name}想做什么？", "{name}想{wish}。"), ("{name}的愿望是什么？", "{name}想{wish}。")],
    "problem": [("遇到了什么问题？", "问题是{problem}。"), ("什么事不顺利？", "问题是{problem}。")],
    "helper": [("谁帮了{name}？", "{helper}帮了{name}。"), ("帮忙的是谁？", "{helper}帮了{name}。")],
    "feeling": [("最后{name}觉得怎么样？", "{name}觉得{feeling}。"), ("{name}最后是{other_feeling}还是{feeling}？", "{name}觉得{feeling}。")],
}

JOBS = {"面包师": "面包", "水手": "船", "园丁": "花", "画家": "画", "老师": "书", "农夫": "苹果", "医生": "药", "渔夫": "网"}
HOBBIES = ["唱歌", "钓鱼", "看书", "跳舞", "做饭", "画画", "散步", "下棋"]
FOODS = ["汤", "煎饼", "米饭", "苹果", "蜂蜜", "面条", "蛋糕"]
PETS = ["猫", "狗", "鹦鹉", "小马", "兔子", "乌龟"]

PERSONAS = ["你是{name}，{place}的{job}。你喜欢{hobby}，最爱吃{food}。你养了一只{pet}。",
            "你是{name}，在{place}做{job}。你爱{hobby}，爱吃{food}。你的宠物是{pet}。"]
CHAT = {
    "name": [("你叫什么名字？", ["我叫{name}。", "我是{name}。"]), ("你是谁？", ["我是{name}，{job}。"])],
    "job": [("你做什么工作？", ["我是{job}，每天和{work}打交道。"]), ("你的工作是什么？", ["我是{job}。"])],
    "place": [("你住在哪里？", ["我住在{place}。"]), ("你在哪里工作？", ["我在{place}工作。"])],
    "hobby": [("你喜欢做什么？", ["我喜欢{hobby}。"]), ("你有什么爱好？", ["我喜欢{hobby}。"])],
    "food": [("你喜欢吃什么？", ["我爱吃{food}。"]), ("你最爱吃什么？", ["我最爱吃{food}。"])],
    "pet": [("你有宠物吗？", ["有，我养了一只{pet}。"]), ("你养了什么动物？", ["我养了一只{pet}。"])],
}
TALK = [
    (["你好！", "你好。", "嗨！"], ["你好！有什么可以帮你？", "你好！我能为你做什么？"]),
    (["早上好！", "早安。"], ["早上好！睡得好吗？", "早上好！"]),
    (["晚安。", "晚安！"], ["晚安！好好睡。", "晚安，做个好梦。"]),
    (["你好吗？", "你今天怎么样？"], ["我很好，谢谢。你呢？", "很好，谢谢！"]),
    (["我很好。", "我今天心情不错。"], ["听到这个我很高兴。", "太好了！"]),
    (["我很难过。", "我今天不开心。"], ["别难过，想听个故事吗？", "真遗憾，我陪着你。"]),
    (["我累了。"], ["那就休息一会儿吧。", "睡一会儿会好的。"]),
    (["我很无聊。"], ["要听一个故事吗？", "我们可以讲故事。"]),
    (["谢谢！", "谢谢你。", "非常感谢！"], ["不客气！", "不用谢。"]),
    (["再见！", "回头见。"], ["再见！祝你愉快。", "再见，下次见！"]),
    (["讲个笑话。", "你会讲笑话吗？"], ["书为什么去看医生？因为它的字太多了！"]),
    (["你喜欢什么颜色？"], ["我喜欢蓝色，像磨坊的水。"]),
    (["今天下雨。"], ["记得带伞。", "雨对花很好。"]),
    (["今天出太阳了。"], ["真好！出去走走吧。"]),
]
SELF = [
    (["你叫什么名字？", "你是谁？", "你是什么？"], ["我是Millrace，一个很小的语言模型。", "我叫Millrace，是一个小语言模型。"]),
    (["你会做什么？", "你能帮我什么？"], ["我会讲故事、回答问题、做小算术、调用工具和聊天。"]),
    (["谁做了你？", "你从哪里来？"], ["我来自Millrace项目，在一台小电脑上训练。"]),
    (["你几岁了？"], ["我很年轻，只是一个小模型。"]),
    (["你是人吗？", "你是机器人吗？"], ["不，我是一个小语言模型。"]),
    (["你会说英语吗？"], ["会，我会说中文和英语。"]),
]
INTRODUCTIONS = ["我叫{user}。", "我是{user}。", "你好，我叫{user}。"]
GREETINGS = ["很高兴认识你，{user}！", "你好，{user}！有什么可以帮你？"]
NAME_QUESTIONS = ["我叫什么名字？", "你知道我的名字吗？"]
NAME_ANSWERS = ["你叫{user}。"]

COUNT_THINGS = "苹果 蛋糕 鸡蛋 皮球 贝壳 石头 橘子".split()
SUMS = ["{a} {op} {b} 等于多少？", "{a} {op} {b} = ?", "计算 {a} {op} {b}。"]
WORD_ADD = "{name}有{a}个{things}，{other}又给了{b}个。{name}现在有几个{things}？"
WORD_SUB = "{name}有{a}个{things}，给了{other}{b}个。还剩几个{things}？"
WORD_MUL = "{name}有{a}个盒子，每个里有{b}个{things}。一共有几个{things}？"
WORD_ANSWERS = ["{a} {op} {b} = {c}。{name}有{c}个{things}。", "{a} {op} {b} = {c}。还剩{c}个{things}。",
                "{a} {op} {b} = {c}。一共有{c}个{things}。"]

REPEATS = ["重复：{words}", "跟我说：{words}", "再写一遍：{words}"]

CITIES = "北京 上海 广州 深圳 杭州 南京 成都 西安 武汉 天津 巴黎 东京".split()
WEATHER = ["晴", "多云", "下雨", "刮风", "下雪", "有雾"]
SYSTEMS = ["你是一个有用的助手。", "你是Millrace，一个小助手。"]
ASK = {
    "get_weather": ["{city}的天气怎么样？", "{city}今天天气如何？", "告诉我{city}的天气。"],
    "set_timer": ["定一个{minutes}分钟的计时器。", "{minutes}分钟后叫我。", "请计时{minutes}分钟。"],
    "calculate": ["计算 {a} {op} {b}。", "{a} {op} {b} 等于多少？"],
    "send_message": ["告诉{person}：{message}。", "给{person}发消息：{message}。"],
}
MESSAGES = ["晚饭好了", "我迟到了", "火车到了", "我到家了", "蛋糕很好吃", "在市场见面", "下雨了", "书在这里"]
TOOL_REPLIES = {
    "get_weather": ["{city}{weather}，{degrees}度。"],
    "set_timer": ["已经定好{minutes}分钟的计时器。"],
    "calculate": ["结果是{c}。"],
    "send_message": ["已经给{person}发了消息。"],
}
NO_TOOL = ["对不起，我没有可用的工具。"]
