// Declares the types and schedules of kernels that gpu_test.cpp and gpu_products_test.cpp test.
#pragma once

#include "tests/codegen/fused_launch.h"
#include "tests/codegen/inputs.h"
#include "weft/codegen/gpu_emit.h"

namespace weft::test {

inline constexpr DType numbers[] = {DType::u8,   DType::i8,  DType::u16, DType::i16,
                                    DType::u32,  DType::i32, DType::i64, DType::f16,
                                    DType::bf16, DType::f32, DType::f64};

inline loop::GpuSchedule schedule_of(const Value& value,
                                     loop::GpuLanguage language = loop::GpuLanguage::cuda) {
  return loop::schedule_gpu(FusedLaunch({value}).loops(language), language);
}

}  // namespace weft::test
