"""Knowledge about one model, for tests."""

from autoopt.results.knowledge import (
    Configuration,
    GoalFacts,
    Knowledge,
    Lesson,
    MachineFacts,
    ModelFacts,
    PassEffect,
    Spread,
)

LESSON = Lesson(
    id="0123456789ab",
    model=ModelFacts(op_counts={"Add": 1}, parameters=0, bytes=9, opset=21),
    machine=MachineFacts(cpu="Fast CPU", cores=4, isa=("avx512_vnni",), runtime="1.22.0"),
    goal=GoalFacts(
        metric="latency_p50",
        device="cpu",
        execution_provider="CPUExecutionProvider",
        threads=1,
        limits={"accuracy": {"max_drop": 0.01}},
    ),
    trials=12,
    quality_metric="accuracy",
    best=Configuration(
        passes=("dynamic_quantization",),
        values={"dynamic_quantization": {"per_channel": True, "op_types": ["MatMul"]}},
        ratios={"latency_p50": 0.5, "size": 0.26},
    ),
    effects=(
        PassEffect(
            pass_name="dynamic_quantization",
            latency=Spread(mean=-0.7, deviation=0.05),
            quality=Spread(mean=-0.002, deviation=0.001),
            trials=8,
            rejected=1,
        ),
        PassEffect(
            pass_name="dynamic_quantization",
            parameter="per_channel",
            value=True,
            latency=Spread(mean=0.05, deviation=0.1),
            trials=4,
        ),
    ),
)
KNOWLEDGE = Knowledge.of((LESSON,), "1.0")
