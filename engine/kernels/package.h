// A forward that AOTInductor compiled. Torch's own binding of it keeps Python's lock all the while:
// nothing else of the process would move during a step, event loops included. Methods of a class
// that is registered with torch are called without it.

#pragma once

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/custom_class.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

struct Package : torch::CustomClassHolder {
  explicit Package(const std::string& path) : loader(path) {}

  std::vector<std::string> constants() { return loader.get_constant_fqns(); }

  // All of the constants, which are read where they are: whoever binds them keeps them alive.
  void bind(const c10::Dict<std::string, at::Tensor>& tensors) {
    std::unordered_map<std::string, at::Tensor> by_name;
    for (const auto& entry : tensors) by_name.emplace(entry.key(), entry.value());
    loader.load_constants(by_name, /*use_inactive=*/false, /*check_full_update=*/true,
                          /*user_managed=*/true);
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) {
    return loader.boxed_run(std::move(inputs));
  }

 private:
  torch::inductor::AOTIModelPackageLoader loader;
};
