from . import (
    batch as batch,
    cli as cli,
    columns as columns,
    comparison as comparison,
    curvature as curvature,
    data as data,
    dynamics as dynamics,
    edge as edge,
    formatting as formatting,
    kinds as kinds,
    losses as losses,
    networks as networks,
    papers as papers,
    probes as probes,
    problems as problems,
    report as report,
    results as results,
    runtime as runtime,
    scenarios as scenarios,
    solvers as solvers,
    sweeps as sweeps,
    tables as tables,
    theory as theory,
    torch as torch,
)
from .comparison import (
    Comparison as Comparison,
    EdgeCriteria as EdgeCriteria,
    FlowLimits as FlowLimits,
    Fork as Fork,
    Interrupted as Interrupted,
    RunStatements as RunStatements,
    SharpnessAlong as SharpnessAlong,
    compare as compare,
    edge_statements as edge_statements,
)
from .curvature import sharpness as sharpness, sharpness_gradient as sharpness_gradient
from .dynamics import (
    SGD as SGD,
    Adam as Adam,
    CosineDecay as CosineDecay,
    DecoupledDecay as DecoupledDecay,
    Descent as Descent,
    Dynamics as Dynamics,
    GradientDescent as GradientDescent,
    GradientFlow as GradientFlow,
    HeavyBall as HeavyBall,
    LabelNoiseSGD as LabelNoiseSGD,
    LearningRate as LearningRate,
    Nesterov as Nesterov,
    NoisyDescent as NoisyDescent,
    NormFlow as NormFlow,
    Optax as Optax,
    Outcome as Outcome,
    Repetitions as Repetitions,
    RMSProp as RMSProp,
    ScalarRMSProp as ScalarRMSProp,
    StepDecay as StepDecay,
    Stopping as Stopping,
    Trajectory as Trajectory,
    WarmUp as WarmUp,
    descend as descend,
    integrate as integrate,
    repeat as repeat,
)
from .edge import (
    CentralFlow as CentralFlow,
    CentreFlow as CentreFlow,
    DescentModel as DescentModel,
    EdgeFlow as EdgeFlow,
    RodFlow as RodFlow,
    StableFlow as StableFlow,
)
from .formatting import Progress as Progress
from .networks import (
    Convolution as Convolution,
    Convolutional as Convolutional,
    DeepLinear as DeepLinear,
    Fixed as Fixed,
    Perceptron as Perceptron,
    ResidualPerceptron as ResidualPerceptron,
)
from .probes import Label as Label, Moment as Moment, Probe as Probe
from .problems import (
    EmpiricalRisk as EmpiricalRisk,
    LinearRegression as LinearRegression,
    Problem as Problem,
    RegularizedRisk as RegularizedRisk,
    Risk as Risk,
)
from .report.page.slider import slider as slider
from .report.side_by_side import side_by_side as side_by_side
from .results import open_results as open_results
from .solvers.step_control import SharpnessLimitedController as SharpnessLimitedController
from .sweeps.sweep import Sweep as Sweep, sweep as sweep
