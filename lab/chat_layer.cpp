// Prompts of llama.cpp's chat layer, `common_chat_templates_apply`, for `python -m lab.templates --json FILE`:
//
//     g++ -O1 -std=c++17 lab/chat_layer.cpp -I$SOURCE/common -I$SOURCE/include -I$SOURCE/ggml/include -I$SOURCE/vendor \
//         -L$BUILD/bin -lllama-common -lllama -lggml -lggml-base -Wl,-rpath,$BUILD/bin -o chat_layer
//     ./chat_layer FILE TEMPLATE.jinja... > theirs.json
//
// SOURCE is llama.cpp's, BUILD a build of it with shared libraries.

#include "chat.h"
#include "json.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

using json = common_json;

static std::string text_of(const std::string & path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

static json prompt_of(const std::string & source, const json & shape) {
    json cell = json::object();
    try {
        auto templates = common_chat_templates_init(nullptr, source, "<s>", "</s>");
        common_chat_templates_inputs inputs;
        inputs.messages = common_chat_msgs_parse_oaicompat(shape.at("messages"));
        inputs.tools = common_chat_tools_parse_oaicompat(shape.at("tools"));
        inputs.parallel_tool_calls = true;
        inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
        cell["prompt"] = common_chat_templates_apply(templates.get(), inputs).prompt;
    } catch (const std::exception & error) {
        cell["error"] = std::string(error.what()).substr(0, 300);
    }
    return cell;
}

int main(int count, char ** given) {
    const json shapes = json::parse(text_of(given[1])).at("shapes");
    json table = json::object();
    for (int at = 2; at < count; at++) {
        json row = json::object();
        for (const auto & [name, shape] : shapes.items()) {
            row[name] = prompt_of(text_of(given[at]), shape);
        }
        table[std::filesystem::path(given[at]).stem().string()] = row;
    }
    std::cout << table.dump() << std::endl;
}
