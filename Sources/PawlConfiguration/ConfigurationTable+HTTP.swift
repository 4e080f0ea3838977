// Keys for a backend that speaks HTTP.

import RequestQueue

extension ConfigurationKey {
    static let upstreamHost = ConfigurationKey(
        "upstream.host", .word, standard: .one(""),
        derived: "upstream.tls.server_name, or the host and port of upstream.url", example: .one("chat.example.org"),
        reason: "For a backend that speaks HTTP: the Host under which the gateway looks up the account of a login and "
            + "the members of a conversation. There is only one: a backend that tells tenants apart by their Host "
            + "needs a gateway for each."
    ) { optional($0.upstream.host) }

    static let mapping = ConfigurationKey(
        "mapping", .path, standard: .one(""), example: .one("config/mappings/matrix.yaml"),
        reason: "For a backend that speaks HTTP: the file that describes where its requests and answers hold the text, "
            + "the sender and the conversation. There is no default, because the gateway cannot know what to protect "
            + "without it."
    ) { optional($0.mapping) }

    static let queueCredentials = ConfigurationKey(
        "queue.credentials", choice(PawlConfiguration.QueueCredentials.self), standard: .one("memory"),
        effect: .restart,
        reason: "For a backend that speaks HTTP: where the gateway keeps the credential for sending a waiting message. "
            + "With `memory`, after a restart a waiting message is sent only once its sender makes a request; `sealed` "
            + "writes the credential into the store under the storage key."
    ) { one($0.queueCredentials.rawValue) }

    static let queueRequestAge = ConfigurationKey(
        "queue.request_age", .number(1...7_776_000, unit: "seconds"),
        standard: one(QueueLimits().age / 1000), effect: .restart,
        reason: "For a backend that speaks HTTP: how long the gateway keeps trying to send an accepted message if the "
            + "backend does not answer. The default is three weeks. Then the message is dead, and its sender is "
            + "notified over an open WebSocket, if there is one."
    ) { .one($0.queueRequestAge.seconds.plain) }

    static let web = [mapping, queueCredentials, queueRequestAge]
}
