"""The names of our own metrics: published, so a name stays and has one meaning everywhere."""

from __future__ import annotations

from enum import StrEnum


class MetricName(StrEnum):
    """A metric's name in CloudWatch."""

    REQUESTS = "Requests"
    MESSAGES_WRITTEN = "MessagesWritten"
    MESSAGES_REPLAYED = "MessagesReplayed"
    MESSAGES_EDITED = "MessagesEdited"
    MESSAGES_DELETED = "MessagesDeleted"
    PAGES_READ = "PagesRead"
    MESSAGES_READ = "MessagesRead"
    WRITES_THROTTLED = "WritesThrottled"
    WRITES_REFUSED_EVERYWHERE = "WritesRefusedEverywhere"
    READS_RETRIED = "ReadsRetried"
    QUERIES_HEDGED = "QueriesHedged"

    PAGES_FROM_L1 = "PagesFromL1"
    PAGES_FROM_REDIS = "PagesFromRedis"
    PAGES_FROM_DYNAMODB = "PagesFromDynamoDB"
    PAGE_FILLS = "PageFills"
    PAGE_FILLS_FAILED = "PageFillsFailed"
    PAGES_MALFORMED = "PagesMalformed"

    REPORTS_DROPPED = "ReportsDropped"
    CONSUMER_STARTED = "ConsumerStarted"
    CONSUMER_LAG_MS = "ConsumerLagMs"

    RAISES = "Raises"
    CLOSES = "Closes"
    DECISION_RAISED = "Decision-raised"
    DECISION_AT_CAP = "Decision-at-cap"
    DECISION_TOO_MANY = "Decision-too-many"
    DECISION_SWITCHED_OFF = "Decision-switched-off"
    DECISION_STILL_WARM = "Decision-still-warm"
    DECISION_READ_HOT = "Decision-read-hot"

    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    REGISTRY_BEHIND_JOURNAL = "RegistryBehindJournal"
    REGISTRY_AHEAD_OF_JOURNAL = "RegistryAheadOfJournal"
    JOURNAL_UPDATE_RETRIED = "JournalUpdateRetried"
    JOURNAL_MALFORMED = "JournalMalformed"

    COMMANDS = "Commands"
