// Keys for a backend that speaks HTTP.

import Protection
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

    static let limitCollected = ConfigurationKey(
        "limits.collected_bytes", .whole(1_048_576...1_099_511_627_776), standard: .one("536870912"),
        reason: "For a backend that speaks HTTP: the memory for all bodies that the gateway collects at one time, in "
            + "bytes: requests to seal, answers to open, and messages over WebSockets. Without room a request is "
            + "answered with 503, and a WebSocket is closed with 1013. An account may hold as much as it leaves free: one "
            + "alone gets half, and two that want all of it a third each. The default has room for eight answers of the "
            + "largest size, or two thousand messages of the largest size; allow three times as much memory for the "
            + "program. At least twice limits.answer_bytes."
    ) { one($0.limits.collectedBytes) }

    static let limitCompress = ConfigurationKey(
        "limits.compress_above", .whole(0...1_073_741_824), standard: .one("1024"), effect: .restart,
        reason:
            "For a backend that speaks HTTP: answers whose messages the gateway opens and that are longer than this, "
            + "in bytes, are compressed with gzip for clients that accept it. The opened texts in them are not "
            + "compressed, so that the length of an answer does not disclose them. Below a kilobyte little is gained; "
            + "0 turns compression off. What the backend compresses and the gateway need not read passes as it is."
    ) { one($0.limits.compressAbove) }

    static let limitRelays = ConfigurationKey(
        "limits.relays_per_account", .whole(0...10_000), standard: .one("16"),
        reason: "For a backend that speaks HTTP: the number of connections of one account that the gateway relays "
            + "between people's own devices, so that they learn no address of each other. What is relayed is encrypted "
            + "end to end. The default is enough for four devices with four chats each; 0 turns relays off."
    ) { one($0.limits.relaysPerAccount) }

    static let limitRelayRate = ConfigurationKey(
        "limits.relay_bytes_per_second", .whole(1024...1_000_000_000), standard: .one("262144"),
        reason: "How many bytes a device may send over one relay in a second; the gateway reads no faster. The default "
            + "is enough for typing indicators and small messages, and keeps 16 relays of an account below 4 MB."
    ) { one($0.limits.relayBytesPerSecond) }

    static let limitRelayIdle = ConfigurationKey(
        "limits.relay_idle", .number(1...3600, unit: "seconds"), standard: .one("60"),
        reason: "How long a relay over which nothing is sent stays open. Messengers close a connection after half of "
            + "the default."
    ) { .one($0.limits.relayIdle.seconds.plain) }

    static let pushURL = ConfigurationKey(
        "push.url", .hook, standard: .one(""), example: .one("https://push.example.org/pawl"), effect: .restart,
        reason:
            "For a backend that speaks HTTP: the push hook, which is called when a message waits for a device that is "
            + "not connected. A call has the push token of the device, which its app has set, and nothing about the "
            + "message. Without a URL nothing is called, and apps can set no token."
    ) { optional($0.push.url?.text) }

    static let pushSecretFile = ConfigurationKey(
        "push.secret_file", .path, standard: .one(""), example: .one("/etc/pawl/push_secret"), effect: .restart,
        reason:
            "A file with the secret that each call of the push hook has as its bearer token, so that nobody else can "
            + "wake devices."
    ) { _ in nil }

    static let pushAuthorities = ConfigurationKey(
        "push.ca", .path, standard: .one(""), derived: "the authorities of the system",
        example: .one("/etc/pawl/push-ca.pem"), effect: .restart,
        reason: "A PEM file with the authorities that may sign the push hook's certificate, if no public authority has "
            + "signed it."
    ) { optional($0.push.authorities) }

    static let controlPlaneSocket = ConfigurationKey(
        "control_plane.socket", .path, standard: .one(""), example: .one("/run/pawl/control.sock"), effect: .restart,
        reason: "For a backend that speaks HTTP: a Unix socket on which programs of the same machine make the calls of "
            + "the control plane (`/_pawl/v1`), and nothing else. Each call needs the login of a person, as over HTTP. "
            + "None by default: the calls are served on the addresses in listen."
    ) { optional($0.controlPlane.socket) }

    static let controlPlaneSocketMode = ConfigurationKey(
        "control_plane.socket_mode", choice(PawlConfiguration.SocketMode.self), standard: .one("0660"),
        effect: .restart,
        reason: "Who may open that socket: the gateway's user, its group too, or everybody on the machine. The default "
            + "is the group, so that a program of another user can be let in without more rights than that."
    ) { one($0.controlPlane.socketMode.rawValue) }

    /// The key of a kind of content.
    static func kind(_ kind: ContentKind) -> ConfigurationKey {
        ConfigurationKey(
            "kinds.\(kind.rawValue)", choice(KindTreatment.self), standard: .one(kind.standard.rawValue),
            example: .one(KindTreatment.refuse.rawValue), reason: reason(of: kind)
        ) { one($0.kinds[kind].rawValue) }
    }

    private static func reason(of kind: ContentKind) -> String {
        switch kind {
        case .reactions:
            "For a backend that speaks HTTP: what happens to reactions where protection is demanded. `pass`: the backend "
                + "reads them; `refuse`: people are told that there are none; `seal`: only if the mapping names the "
                + "content, which `pawl config check` reports. The default is pass, because backends count reactions."
        case .topics:
            "Topics and descriptions of rooms, in the same way. The default is pass: the backend shows them to people "
                + "who are not in the room. Users should know that they are not protected."
        case .names:
            "Names of rooms, in the same way. The default is pass: people find rooms by their names, and lists without "
                + "names are useless."
        case .polls:
            "Polls and votes, in the same way. The default is refuse: question and answers are texts of people, and a "
                + "backend that counts votes reads them."
        case .custom:
            "Events and fields that an app has invented, and of which the mapping knows nothing. The default is refuse, "
                + "because they may hold any text. With `pass` the backend reads them all: stickers that are not "
                + "files, live locations, notes of widgets. With `seal`, if the mapping can, only those who read "
                + "through the gateway find anything in them."
        case .keywords:
            "Words of which people want to be notified. The default is pass: the backend reads the words, and finds "
                + "them in no sealed text. `pawl status` lists whose they are. `refuse` keeps new ones from the backend."
        }
    }

    static let web =
        [mapping] + ContentKind.allCases.map { kind($0) }
        + [queueCredentials, queueRequestAge, pushURL, pushSecretFile, pushAuthorities]
        + [controlPlaneSocket, controlPlaneSocketMode]
}
