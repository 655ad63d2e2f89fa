// Puts records into LevelDB or RocksDB and prints what that took as one line of JSON. The libraries are the system's;
// nothing builds this by default: `stores.py` does.
//
// Keys have 16 bytes; values are pseudo-random, so that nothing compresses. With several directories each key goes to
// the database of one of them, by its hash. What a put takes is measured at the writer, from its call to its return.
// Memory is held down: buffers and caches have the size that is given, mapped reads are off. If the emulated disks are
// preloaded, what they counted is part of the output.

#include <dlfcn.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

namespace leveldb {
// Of util/env_posix_test_helper.h, which is not installed; the static library has it.
class EnvPosixTestHelper {
 public:
  static void SetReadOnlyMMapLimit(int limit);
};
}  // namespace leveldb

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::string store = "leveldb";
  std::vector<std::string> dirs;
  bool random_keys = true, sync = true;
  uint64_t value_bytes = 100'000, puts = 1'000, writers = 1, seed = 1;
  uint64_t buffer_bytes = 4 << 20, cache_bytes = 8 << 20;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "stores: %s\n", message.c_str());
  std::exit(2);
}

uint64_t number(const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end) fail(text + " is no number");
  return value;
}

// SplitMix64, whose step is a bijection: no two puts of a seed have the same key.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::string key_of(const Settings& settings, uint64_t put) {
  char key[17];
  std::snprintf(key, sizeof key, "%016lx", settings.random_keys ? mixed(put ^ (settings.seed << 40)) : put);
  return std::string(key, 16);
}

class Store {
 public:
  virtual ~Store() = default;
  virtual std::string put(const std::string& key, const std::string& value, bool sync) = 0;
};

class LevelDb final : public Store {
 public:
  LevelDb(const std::string& dir, const Settings& settings) : cache_(leveldb::NewLRUCache(settings.cache_bytes)) {
    leveldb::Options options;
    options.create_if_missing = options.error_if_exists = true;
    options.compression = leveldb::kNoCompression;
    options.write_buffer_size = settings.buffer_bytes;
    options.block_cache = cache_.get();
    leveldb::DB* db = nullptr;
    const leveldb::Status status = leveldb::DB::Open(options, dir + "/leveldb", &db);
    if (!status.ok()) fail(status.ToString());
    db_.reset(db);
  }

  std::string put(const std::string& key, const std::string& value, bool sync) override {
    leveldb::WriteOptions options;
    options.sync = sync;
    const leveldb::Status status = db_->Put(options, key, value);
    return status.ok() ? "" : status.ToString();
  }

 private:
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<leveldb::DB> db_;
};

class RocksDb final : public Store {
 public:
  RocksDb(const std::string& dir, const Settings& settings) {
    rocksdb::Options options;
    options.create_if_missing = options.error_if_exists = true;
    options.compression = rocksdb::kNoCompression;
    options.write_buffer_size = settings.buffer_bytes;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(settings.cache_bytes);
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options, dir + "/rocksdb", &db);
    if (!status.ok()) fail(status.ToString());
    db_.reset(db);
  }

  std::string put(const std::string& key, const std::string& value, bool sync) override {
    rocksdb::WriteOptions options;
    options.sync = sync;
    const rocksdb::Status status = db_->Put(options, key, value);
    return status.ok() ? "" : status.ToString();
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
};

Settings parsed(int count, char** words) {
  Settings settings;
  auto number_into = [](uint64_t& into) { return [&into](const std::string& text) { into = number(text); }; };
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"--store", [&](const std::string& text) { settings.store = text; }},
      {"--dir", [&](const std::string& text) { settings.dirs.push_back(text); }},
      {"--keys", [&](const std::string& text) { settings.random_keys = text != "sequential"; }},
      {"--sync", [&](const std::string& text) { settings.sync = text != "0"; }},
      {"--value-bytes", number_into(settings.value_bytes)},
      {"--puts", number_into(settings.puts)},
      {"--writers", number_into(settings.writers)},
      {"--seed", number_into(settings.seed)},
      {"--buffer-bytes", number_into(settings.buffer_bytes)},
      {"--cache-bytes", number_into(settings.cache_bytes)},
  };
  for (int at = 1; at < count; at += 2) {
    const auto option = options.find(words[at]);
    if (option == options.end() || at + 1 == count) fail(std::string("no such option, or no value: ") + words[at]);
    option->second(words[at + 1]);
  }
  if (settings.dirs.empty() || settings.puts == 0 || settings.writers == 0) fail("give --dir, and puts and writers above 0");
  return settings;
}

std::unique_ptr<Store> opened(const Settings& settings, const std::string& dir) {
  if (settings.store == "leveldb") return std::make_unique<LevelDb>(dir, settings);
  if (settings.store == "rocksdb") return std::make_unique<RocksDb>(dir, settings);
  fail("--store is leveldb or rocksdb, not " + settings.store);
}

// What the emulated disks have counted, or `null` where there are none.
std::string disk_stats() {
  using Stats = size_t (*)(char*, size_t);
  const auto stats = reinterpret_cast<Stats>(dlsym(RTLD_DEFAULT, "emulated_disks_stats"));
  if (!stats) return "null";
  std::vector<char> text(1 << 16);
  stats(text.data(), text.size());
  return text.data();
}

// Every writer takes every n-th put; the milliseconds that each put took.
std::vector<double> puts(const Settings& settings, const std::vector<std::unique_ptr<Store>>& stores) {
  std::vector<std::vector<double>> took(settings.writers);
  const auto write = [&](uint64_t writer) {
    // A slice of random bytes, another one for each put.
    std::string bytes(settings.value_bytes + 4'096, 0);
    for (size_t at = 0; at < bytes.size(); at++) bytes[at] = static_cast<char>(mixed(at ^ (writer << 32)));
    for (uint64_t put = writer; put < settings.puts; put += settings.writers) {
      const std::string key = key_of(settings, put);
      const std::string value = bytes.substr(mixed(put) % 4'096, settings.value_bytes);
      Store& store = *stores[std::hash<std::string>{}(key) % stores.size()];
      const auto begin = Clock::now();
      const std::string problem = store.put(key, value, settings.sync);
      if (!problem.empty()) fail(problem);
      took[writer].push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
  };
  std::vector<std::thread> writers;
  for (uint64_t writer = 0; writer < settings.writers; writer++) writers.emplace_back(write, writer);
  for (auto& writer : writers) writer.join();
  std::vector<double> all;
  for (const auto& part : took) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::string version(const std::string& store) {
  if (store == "rocksdb") return rocksdb::GetRocksVersionAsString();
  return std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion);
}

}  // namespace

int main(int count, char** words) {
  const Settings settings = parsed(count, words);
  // Before any database is opened: reads by mappings would not be seen.
  leveldb::EnvPosixTestHelper::SetReadOnlyMMapLimit(0);
  std::vector<std::unique_ptr<Store>> stores;
  for (const auto& dir : settings.dirs) stores.push_back(opened(settings, dir));
  const auto begin = Clock::now();
  const std::vector<double> took = puts(settings, stores);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string at_end = disk_stats();
  stores.clear();
  const auto quantile = [&](double share) { return took[static_cast<size_t>(share * static_cast<double>(took.size() - 1))]; };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"store\": \"%s\", \"version\": \"%s\", \"keys\": \"%s\", \"sync\": %s, \"dirs\": %zu, \"writers\": %lu, "
      "\"value_bytes\": %lu, \"puts\": %lu, \"put_bytes\": %lu, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
      "\"max_ms\": %.4f, \"peak_rss_bytes\": %ld, \"disks_after_puts\": %s, \"disks_after_close\": %s}\n",
      settings.store.c_str(), version(settings.store).c_str(), settings.random_keys ? "random" : "sequential",
      settings.sync ? "true" : "false", settings.dirs.size(), settings.writers, settings.value_bytes, settings.puts,
      settings.puts * (settings.value_bytes + 16), seconds, quantile(0.5), quantile(0.99), took.back(),
      usage.ru_maxrss * 1024, at_end.c_str(), disk_stats().c_str());
  return 0;
}
