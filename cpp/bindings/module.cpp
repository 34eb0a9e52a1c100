// The compiled module: errors, then one line per family of functions.
#include "bindings.hpp"

namespace dpmicro::bindings {
namespace {

// Core exceptions become the classes of errors.py, looked up when thrown.
void translate(std::exception_ptr thrown) {
  const auto raise = [](const char* name, const char* what) {
    const py::object type = py::module_::import("dpmicro_native.errors").attr(name);
    PyErr_SetString(type.ptr(), what);
  };
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const InputError& error) {
    raise("InputError", error.what());
  } catch (const GeneratorError& error) {
    raise("GeneratorError", error.what());
  } catch (const Cancelled&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  }
}

}  // namespace
}  // namespace dpmicro::bindings

PYBIND11_MODULE(_core, m) {
  using namespace dpmicro::bindings;
  py::register_local_exception_translator(&translate);
  m.attr("__version__") = DPMICRO_VERSION;
  register_evaluate(m);
  register_kernels(m);
  register_lloyd(m);
  register_moments(m);
  register_noise(m);
  register_partition(m);
  register_safepub(m);
}
