/* spdlog's asynchronous logger, whose queue overwrites the oldest; its thread writes files of 1 MiB in turn. */
#include "voice.h"
#include <spdlog/async.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/spdlog.h>
#include <string>

static spdlog::logger *logger;

static void write_record(const char *message) { logger->info(message); }

int main(int n_words, char **words) {
    if (n_words != 2)
        return 1;
    spdlog::init_thread_pool(8192, 1);
    auto made = spdlog::rotating_logger_mt<spdlog::async_factory_nonblock>(
        TAG, std::string(words[1]) + "/spdlog.log", 1 << 20, 1);
    logger = made.get();
    return serve();
}
