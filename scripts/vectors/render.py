"""Renders chat templates as engines do: Jinja2 under the settings of transformers.

Reads one JSON object from standard input, writes one to standard output:

    {"chatTemplate", "specialTokens", "chat": [{"name", "body"}], "jinja": [{"name", "template", "variables"}], "now"}
    {"versions", "chat": [{"name", "body", "rendered"}], "jinja": [{..., "rendered"} or {..., "error": true}]}

Written against the documents of transformers and vLLM, and on purpose without a line of this repository's packages:
what it prints is what they are tested against.
"""

import copy
import datetime
import json
import platform
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MARK = "CONTINUE_FINAL_MESSAGE_TAG "


class Generation(Extension):
    """`{% generation %}` marks what the assistant said; it prints its body and nothing else."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment(now):
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def joined(content):
    """Message content in the "string" format of engines: text parts on lines of their own."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["text"])


def normalized(message):
    message = copy.deepcopy(message)
    message["content"] = joined(message.get("content"))
    for call in message.get("tool_calls") or []:
        arguments = call["function"].get("arguments")
        if not arguments:
            call["function"]["arguments"] = {}
        elif isinstance(arguments, str):
            call["function"]["arguments"] = json.loads(arguments)
    return message


def render_chat(template, special_tokens, body):
    messages = [normalized(message) for message in body["messages"]]
    continued = body.get("continue_final_message", False)
    if continued:
        messages[-1]["content"] += MARK
    context = {
        **special_tokens,
        "messages": messages,
        "tools": body.get("tools"),
        "documents": body.get("documents"),
        "add_generation_prompt": body.get("add_generation_prompt", True),
        **body.get("chat_template_kwargs", {}),
    }
    rendered = template.render(**context)
    if not continued:
        return rendered
    at = rendered.rindex(MARK.strip())
    return rendered[:at] if rendered[at:].startswith(MARK) else rendered[:at].rstrip()


def render_jinja(env, case):
    try:
        template = env.from_string(case["template"])
        return {**case, "rendered": template.render(**case.get("variables", {}))}
    except Exception as error:  # any failure: only that there is one is compared
        print(f"{case['name']}: {type(error).__name__}: {error}", file=sys.stderr)
        return {**case, "error": True}


def main():
    request = json.load(sys.stdin)
    env = environment(datetime.datetime(*request["now"]))
    template = env.from_string(request["chatTemplate"])
    chat = [
        {**case, "rendered": render_chat(template, request["specialTokens"], case["body"])}
        for case in request["chat"]
    ]
    json.dump(
        {
            "versions": {"python": platform.python_version(), "jinja2": jinja2.__version__},
            "chat": chat,
            "jinja": [render_jinja(env, case) for case in request["jinja"]],
        },
        sys.stdout,
    )


main()
