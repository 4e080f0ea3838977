// The treatment of every IRC verb. Unknown verbs are refused under `hosted` and above. The tests compare this table
// with the lists of verbs of the specifications and of the servers.

import DeviceDirectory
package import IRCCodec
package import Protection

/// The kind of data in a command.
package enum RouteLabel: Sendable, Equatable {
    /// Text from people to other people.
    case content
    /// Data about people or rooms that the backend needs or shows.
    case metadata
    /// Connection control and requests to the server.
    case control
}

/// The treatment of a client's command under `hosted` and `required`.
///
/// Under weaker policies every command passes, and content is counted.
package enum RouteTreatment: Sendable, Equatable {
    /// Sealed for each recipient, or refused with the reason (design section 2).
    case seal
    /// Forwarded without the free text in the given parameter; the sender is notified once.
    case strip(parameter: Int)
    /// Forwarded unchanged.
    case pass
    /// Forwarded, although it may contain free text.
    case count
    /// As the operator has chosen for the free text in the given parameter; forwarded without one.
    case text(CommandText, parameter: Int)
    /// Refused.
    case refuse
    /// The gateway answers or rewrites it (CAP, STARTTLS, AUTHENTICATE), or notes it (WHOIS).
    case handled
    /// A command to services: forwarded, never stored, never logged.
    case secret
}

/// One row of the table.
package struct Route: Sendable, Equatable {
    package let verb: String
    package let label: RouteLabel
    package let hosted: RouteTreatment
    package let key: VerbKey

    package init(_ verb: String, _ label: RouteLabel, _ hosted: RouteTreatment) {
        (self.verb, self.label, self.hosted, self.key) = (verb, label, hosted, VerbKey(verb))
    }
}

/// What the gateway does with a verb of the server.
package enum ServerTreatment: Sendable, Equatable {
    /// A message: envelopes are opened, and plaintext is delivered, marked or withheld.
    case message
    /// The gateway updates its own state and forwards the line.
    case tracked
    /// It may answer a command of the gateway, which is then not forwarded.
    case answer
    /// Forwarded. The gateway does not act on it.
    case pass
}

/// One row of the table of a server's verbs.
package struct ServerRoute: Sendable, Equatable {
    package let verb: String
    package let label: RouteLabel
    package let treatment: ServerTreatment
    package let key: VerbKey

    init(_ verb: String, _ label: RouteLabel, _ treatment: ServerTreatment) {
        (self.verb, self.label, self.treatment, self.key) = (verb, label, treatment, VerbKey(verb))
    }
}

/// The table for IRC.
package enum IRCRouteTable {
    private static func rows(_ verbs: String, _ label: RouteLabel, _ treatment: RouteTreatment) -> [Route] {
        verbs.split(separator: " ").map { Route(String($0), label, treatment) }
    }

    /// Commands with a text for which the operator chooses.
    private static func rows(_ verbs: String, _ parameter: Int) -> [Route] {
        verbs.split(separator: " ").map(String.init).map { verb in
            guard let text = CommandText(verb: verb) else { preconditionFailure("\(verb) has no text to choose for") }
            return Route(verb, .content, .text(text, parameter: parameter))
        }
    }

    /// Verbs that clients send.
    package static let client: [Route] = [
        rows("PRIVMSG NOTICE TAGMSG", .content, .seal),
        // Text for people, but not for one recipient: envelopes do not support it yet.
        rows("CPRIVMSG CNOTICE BATCH REDACT RELAYMSG", .content, .refuse),
        rows("AWAY QUIT WALLOPS GLOBOPS", 0),
        rows("TOPIC SATOPIC PART CYCLE SAQUIT", 1),
        rows("KICK REMOVE SAKICK SAPART", 2),
        rows("KNOCK SUMMON SQUIT", .content, .strip(parameter: 1)),
        rows("SETNAME USER INVITE METADATA", .metadata, .count),
        rows(
            "NICK JOIN MODE NAMES LIST WHO WHOWAS USERHOST USERIP ISON MONITOR WATCH SILENCE ACCEPT", .metadata, .pass),
        rows("DCCALLOW UNINVITE MARKREAD CHATHISTORY RENAME TITLE VHOST", .metadata, .pass),
        rows("CAP STARTTLS AUTHENTICATE WHOIS", .control, .handled),
        rows(
            "PING PONG WEBIRC PASS OPER SERVICE MOTD RULES LUSERS VERSION STATS LINKS TIME TRACE ADMIN INFO SERVLIST",
            .control,
            .pass),
        rows(
            "HELP HELPOP USERS MAP MODULES COMMANDS PROTOCTL SSLINFO ALLTIME OPERMOTD CHARCONV ERROR", .control, .pass),
        rows("REGISTER VERIFY SQUERY IDENTIFY NICKSERV NS CHANSERV CS MEMOSERV MS", .control, .secret),
        rows("OPERSERV OS BOTSERV BS HOSTSERV HS STATSERV SS", .control, .secret),
        rows(
            "KILL CONNECT DISCONNECT REHASH DIE RESTART GLINE KLINE ZLINE QLINE ELINE RLINE SHUN CBAN TBAN", .control,
            .pass),
        rows(
            "TLINE FILTER CHECK CLOSE CLEARCHAN CLEARCACHE OJOIN LOADMODULE UNLOADMODULE RELOADMODULE", .control, .pass),
        rows(
            "GLOADMODULE GUNLOADMODULE GRELOADMODULE LOCKSERV UNLOCKSERV NICKLOCK NICKUNLOCK SETHOST", .control, .pass),
        rows(
            "SETIDENT SETIDLE CHGHOST CHGIDENT CHGNAME SWHOIS SAJOIN SANICK SAMODE RMODE RSQUIT JUMPSERVER", .control,
            .pass),
        rows("MKPASSWD SAKILL FJOIN DEOPER", .control, .pass),
    ].flatMap { $0 }

    private static func rows(_ verbs: String, _ label: RouteLabel, _ treatment: ServerTreatment) -> [ServerRoute] {
        verbs.split(separator: " ").map { ServerRoute(String($0), label, treatment) }
    }

    /// Verbs that servers send to clients.
    package static let server: [ServerRoute] = [
        rows("PRIVMSG NOTICE TAGMSG", .content, .message),
        rows("QUIT PART KICK KILL", .content, .tracked),
        rows("WALLOPS GLOBOPS TOPIC AWAY KNOCK REDACT", .content, .pass),
        rows("NICK JOIN MODE ACCOUNT", .metadata, .tracked),
        rows("INVITE CHGHOST SETNAME RENAME MARKREAD METADATA", .metadata, .pass),
        rows("CAP BATCH ACK PING PONG AUTHENTICATE FAIL", .control, .answer),
        rows("ERROR", .control, .tracked),
        rows("WARN NOTE REGISTER VERIFY SUMMON MONITOR", .control, .pass),
    ].flatMap { $0 }

    /// Replies to WHOIS.
    package static let whois: Set<Int> = [
        276, 307, 308, 309, 310, 311, 312, 313, 316, 317, 318, 319, 320, 330, 335, 337, 338, 344, 350, 378, 379, 401,
        402, 569, 615, 616, 671, 672, 673,
    ]

    /// Errors for a message that has not reached its target. The target is their second parameter.
    package static let messageErrors: Set<Int> = [
        401, 402, 403, 404, 405, 407, 408, 411, 412, 413, 414, 415, 416, 417, 437, 439, 442, 447, 477, 482, 486, 489,
        492, 494, 499, 502, 513, 520, 531, 573, 716, 936, 937, 974, 978, 979,
    ]

    private static let clientByKey = Dictionary(uniqueKeysWithValues: client.map { ($0.key, $0) })
    private static let serverByKey = Dictionary(uniqueKeysWithValues: server.map { ($0.key, $0) })

    package static func client(_ key: VerbKey) -> Route? { clientByKey[key] }
    package static func server(_ key: VerbKey) -> ServerRoute? { serverByKey[key] }
}

extension VerbKey {
    package static let privmsg = VerbKey("PRIVMSG")
    package static let notice = VerbKey("NOTICE")
    package static let tagmsg = VerbKey("TAGMSG")
    package static let cap = VerbKey("CAP")
    package static let nick = VerbKey("NICK")
    package static let join = VerbKey("JOIN")
    package static let part = VerbKey("PART")
    package static let kick = VerbKey("KICK")
    package static let quit = VerbKey("QUIT")
    package static let pass = VerbKey("PASS")
    package static let user = VerbKey("USER")
    package static let ping = VerbKey("PING")
    package static let error = VerbKey("ERROR")
    package static let kill = VerbKey("KILL")
    package static let batch = VerbKey("BATCH")
    package static let ack = VerbKey("ACK")
    package static let pong = VerbKey("PONG")
    package static let whois = VerbKey("WHOIS")
    package static let starttls = VerbKey("STARTTLS")
    package static let authenticate = VerbKey("AUTHENTICATE")
    package static let fail = VerbKey("FAIL")
    package static let pawl = VerbKey(ControlFrames.verb)
    package static let account = VerbKey("ACCOUNT")
    package static let away = VerbKey("AWAY")
    package static let mode = VerbKey("MODE")

    /// PRIVMSG or NOTICE.
    package var isText: Bool { self == .privmsg || self == .notice }
}
