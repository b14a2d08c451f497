"""Chat templates in the manner of well-known model families, for the tests."""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% set speaker = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + speaker + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

LLAMA3 = """{%- set ns = namespace(first=true) -%}
{%- for message in messages -%}
    {%- set turn = '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n'
        ~ (message.content | trim) ~ '<|eot_id|>' -%}
    {%- if ns.first -%}{%- set ns.first = false -%}{{ '<|begin_of_text|>' }}{%- endif -%}
    {{- turn -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}"""

QWEN3 = """{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- '# Functions\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last_query=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' and message.content is string %}
        {%- set ns.last_query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = message.reasoning_content or '' %}
        {%- if not reasoning and '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if reasoning and loop.index0 > ns.last_query %}
            {{- '<think>\n' + reasoning + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function %}
            {{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + content + '\n</tool_response><|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

GENERATION = """{% for message in messages %}
<|im_start|>{{ message.role }}
{% generation %}{{ message.content }}{% endgeneration %}<|im_end|>
{% endfor %}"""

# Of the form of Qwen3-Coder's: tools as they are, calls as tags.
QWEN3_CODER = """{% for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if loop.first and tools %}
{%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<parameter=' + name + '>\\n' }}
{{- value if value is string else value | tojson | safe }}
{{- '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

BY_NAME = {
    "gemma": GEMMA,
    "llama3": LLAMA3,
    "qwen3": QWEN3,
    "generation": GENERATION,
    "qwen3-coder": QWEN3_CODER,
}
