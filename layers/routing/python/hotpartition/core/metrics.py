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
    PUTS_REPEATED = "PutsRepeated"
    WRITES_WITHOUT_LEASE = "WritesWithoutLease"
    STORED_AT_SECOND_CHOICE = "StoredAtSecondChoice"
    STORED_AT_THIRD_CHOICE = "StoredAtThirdChoice"
    READS_RETRIED = "ReadsRetried"
    QUERIES_HEDGED = "QueriesHedged"
    DIVERGENT_COPIES = "DivergentCopies"

    PAGES_FROM_L1 = "PagesFromL1"
    PAGES_FROM_REDIS = "PagesFromRedis"
    PAGES_FROM_DYNAMODB = "PagesFromDynamoDB"
    PAGE_AGE_MS = "PageAgeMs"
    PAGE_FILLS = "PageFills"
    PAGE_FILLS_FAILED = "PageFillsFailed"
    PAGES_MALFORMED = "PagesMalformed"

    REPORTS_DROPPED = "ReportsDropped"
    REPORTS_MALFORMED = "ReportsMalformed"
    REPORTS_OUT_OF_WINDOW = "ReportsOutOfWindow"
    CONSUMER_STARTED = "ConsumerStarted"
    CONSUMER_LAG_MS = "ConsumerLagMs"

    RAISES = "Raises"
    CLOSES = "Closes"
    CLOSES_VOID = "ClosesVoid"
    DECISION_RAISED = "Decision-raised"
    DECISION_AT_CAP = "Decision-at-cap"
    DECISION_TOO_MANY = "Decision-too-many"
    DECISION_SWITCHED_OFF = "Decision-switched-off"
    DECISION_STILL_WARM = "Decision-still-warm"
    DECISION_READ_HOT = "Decision-read-hot"

    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    REGISTRY_MALFORMED = "RegistryMalformed"
    REGISTRY_BEHIND_JOURNAL = "RegistryBehindJournal"
    REGISTRY_AHEAD_OF_JOURNAL = "RegistryAheadOfJournal"
    JOURNAL_READ_FAILED = "JournalReadFailed"
    JOURNAL_UPDATE_RETRIED = "JournalUpdateRetried"
    JOURNAL_MALFORMED = "JournalMalformed"

    COMMANDS = "Commands"
    COMMANDS_REFUSED = "CommandsRefused"
