// Gives Python an exception class for each kind of error, which is also one of Python's own where
// that exists: `except ValueError` finds a wrong shape, `except MemoryError` a step that does not
// fit. Each message ends with the line of the Python program that called weft.
#include <initializer_list>
#include <string>
#include <string_view>

#include "weft/base/error.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
struct Classes {
  nb::object error, usage, does_not_fit, data, device, internal;
};
Classes& classes() {
  static Classes* const all = new Classes;  // outlives the interpreter's last call
  return *all;
}

nb::object make_class(nb::module_& m, const char* name, const char* doc,
                      std::initializer_list<nb::handle> bases) {
  nb::list list;
  for (const nb::handle base : bases) list.append(base);
  const std::string full = std::string("weft.") + name;
  auto made =
      nb::steal(PyErr_NewExceptionWithDoc(full.c_str(), doc, nb::tuple(list).ptr(), nullptr));
  m.attr(name) = made;
  return made;
}

nb::handle class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return classes().usage;
    case ErrorKind::does_not_fit:
      return classes().does_not_fit;
    case ErrorKind::data:
    case ErrorKind::checkpoint:
      return classes().data;
    case ErrorKind::device:
      return classes().device;
    case ErrorKind::failed:
    case ErrorKind::non_finite:
    case ErrorKind::rank_lost:
    case ErrorKind::replicas_differ:
      return classes().error;
  }
  return classes().error;
}

// Returns where the place begins that a message ends with, " (net.py:12)"; the end where it has
// none.
size_t place_in(std::string_view message) {
  const size_t open = message.rfind(" ("), colon = message.rfind(':');
  if (open == message.npos || colon == message.npos || colon < open || !message.ends_with(')'))
    return message.size();
  const std::string_view line = message.substr(colon + 1, message.size() - colon - 2);
  const bool is_number = !line.empty() && line.find_first_not_of("0123456789") == line.npos;
  return is_number ? open : message.size();
}

// Returns a message with the line of the Python program: one that names no line, or a line of the
// library, which says nothing to a user.
std::string with_line(const std::string& message) {
  const size_t end = place_in(message);
  const std::string_view place = std::string_view(message).substr(end);
  if (!place.empty() && place.find(".cpp:") == place.npos && place.find(".h:") == place.npos)
    return message;
  const UserLocation where = program_line();
  if (where.file == nullptr || *where.file == '\0') return message;
  const std::string_view file = where.file;
  return fmt::format("{} ({}:{})", message.substr(0, end), file.substr(file.rfind('/') + 1),
                     where.line);
}

// Makes exceptions of the package and of the extension alike name their line.
void init_error(nb::handle self, nb::args args) {
  nb::list with;
  for (const nb::handle each : args) with.append(each);
  if (nb::len(with) == 1 && nb::isinstance<nb::str>(with[0]))
    with[0] = with_line(nb::cast<std::string>(with[0]));
  nb::handle(PyExc_RuntimeError).attr("__init__")(self, *nb::tuple(with));
}

void raise(nb::handle type, const std::string& message, ErrorKind kind, size_t least_bytes) {
  nb::object error = type(message);
  error.attr("exit_code") = static_cast<int>(kind);
  if (least_bytes > 0) error.attr("least_bytes") = least_bytes;
  PyErr_SetObject(type.ptr(), error.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const StepTooLarge& error) {
    raise(classes().does_not_fit, error.what(), error.kind(), error.least_bytes);
  } catch (const Error& error) {
    raise(class_of(error.kind()), error.what(), error.kind(), 0);
  } catch (const InternalError& error) {
    PyErr_SetString(classes().internal.ptr(), error.what());
  }
}
}  // namespace

void bind_errors(nb::module_& m) {
  Classes& all = classes();
  all.error =
      make_class(m, "Error", "What went wrong, in one line. exit_code is that of the program weft.",
                 {PyExc_RuntimeError});
  all.error.attr("__init__") = nb::cpp_function(&init_error, nb::is_method());
  all.usage = make_class(m, "UsageError", "A mistake of the caller: a shape, a dtype, an option.",
                         {all.error, PyExc_ValueError});
  all.does_not_fit =
      make_class(m, "DoesNotFit",
                 "No plan fits the memory. least_bytes is what would be enough, where it is known.",
                 {all.error, PyExc_MemoryError});
  all.does_not_fit.attr("least_bytes") = nb::none();
  all.data =
      make_class(m, "DataError", "A file is not what it should be.", {all.error, PyExc_ValueError});
  all.device = make_class(m, "DeviceError", "A device is missing or was lost.", {all.error});
  all.internal =
      make_class(m, "InternalError", "A defect of weft; the message says how to report it.",
                 {PyExc_RuntimeError});
  nb::register_exception_translator(&translate);
}

}  // namespace weft::python
