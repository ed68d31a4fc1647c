"""Services of AWS, and others that speak their protocols: Kinesis and SQS as sources and sinks."""

from topo.connectors.aws.kinesis import KinesisSpout
from topo.connectors.aws.sinks import KinesisBolt, SqsBolt
from topo.connectors.aws.sqs import SqsSpout

__all__ = ["KinesisBolt", "KinesisSpout", "SqsBolt", "SqsSpout"]
