// The keys for a backend that speaks HTTP.

extension ConfigurationKey {
    static let upstreamHost = ConfigurationKey(
        "upstream.host", .word, standard: .one(""),
        derived: "upstream.tls.server_name, or the host and port of upstream.url", example: .one("chat.example.org"),
        reason:
            "The Host of the questions whose a login is and who is in a conversation, for an HTTP backend that goes "
            + "by its name. Always one: a backend that has several tenants by their Host needs a gateway for each."
    ) { optional($0.upstream.host) }

    static let mapping = ConfigurationKey(
        "mapping", .path, standard: .one(""), example: .one("config/mappings/matrix.yaml"),
        reason:
            "For a backend that speaks HTTP: the file that says where in its requests and answers a text, its sender "
            + "and its conversation stand. Without one nobody could tell what to protect, so there is no default."
    ) { optional($0.mapping) }

    static let queueCredentials = ConfigurationKey(
        "queue.credentials", choice(PawlConfiguration.QueueCredentials.self), standard: .one("memory"),
        effect: .restart,
        reason: "For a backend that speaks HTTP: where the credential is kept that a waiting message is sent with. In "
            + "`memory` a message that waits over a restart waits for its sender's next request; `sealed` writes it into "
            + "the store under the storage key."
    ) { one($0.queueCredentials.rawValue) }

    static let queueRequestAge = ConfigurationKey(
        "queue.request_age", .number(1...7_776_000, unit: "seconds"), standard: .one("1814400"), effect: .restart,
        reason:
            "For a backend that speaks HTTP: how long a message that was accepted is tried to be sent, however often "
            + "the backend does not answer: three weeks. Then it is dead, and its sender is told if a WebSocket of "
            + "theirs is open."
    ) { .one($0.queueRequestAge.seconds.plain) }

    static let web = [mapping, queueCredentials, queueRequestAge]
}
