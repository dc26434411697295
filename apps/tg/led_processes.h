/// \file Commands with a model that several processes compute, started by mpirun or srun.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tinygrad/llm/world_leader.h"

namespace tg::app {

/// Returns the file of a model: `model` itself, a folder too, or what llm::find_model finds, which may download it.
std::filesystem::path file_of_model(const std::string& model);
/// Returns what --chat-template is, with the names that it takes; reads no settings.
std::string chat_template_help();

/// Calls `lead` in rank 0, with what ModelOptions::leader takes, and lets the other processes follow it until it ends.
/// They all have the model's file then. Alone, `lead` is called with nullptr. Returns the exit code.
int with_led_processes(const std::string& model, const std::string& device,
                       const std::function<int(std::shared_ptr<llm::WorldLeader>)>& lead);

}  // namespace tg::app
