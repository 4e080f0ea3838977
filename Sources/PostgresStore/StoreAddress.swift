// Where the database is, and what is refused there before a password leaves this process.

import CLibpq
import Foundation
package import StorePort

/// The URI of a database, as libpq reads it, without a password.
package struct StoreAddress: Sendable, Equatable {
    /// As it was given.
    package let text: String
    /// Whether a pooler in transaction mode may stand between: then no statement is prepared by name.
    package let isPooled: Bool
    /// For tests: whether a standby is connected to as well.
    private var isAnyServer = false

    /// - Throws: ``StoreError/unavailable(_:)`` if it is no URI of libpq or names a password.
    package init(_ text: String, isPooled: Bool = false) throws(StoreError) {
        guard ["postgresql://", "postgres://"].contains(where: text.hasPrefix) else {
            throw .unavailable(
                "The address of the database is not a URI: postgresql://USER@HOST/DATABASE?sslmode=verify-full, or "
                    + "postgresql://?service=NAME for a service file.")
        }
        var message: UnsafeMutablePointer<CChar>?
        guard let options = PQconninfoParse(text, &message) else {
            defer { PQfreemem(message) }
            // The message repeats what was given, which may hold a password.
            throw .unavailable("The address of the database cannot be read as a URI of PostgreSQL.")
        }
        defer { PQconninfoFree(options) }
        let given = ConnectionSettings(options: options)
        for secret in ["password", "sslpassword"] where given[secret] != nil {
            throw .unavailable(
                """
                The address of the database holds a password. Everybody who can list processes or read the \
                configuration could read it. Put it into a file with mode 0600 and name that file in the environment \
                variable PGPASSFILE, or use a client certificate.
                """)
        }
        (self.text, self.isPooled) = (text, isPooled)
    }

    /// For tests.
    init(_ text: String, isAnyServer: Bool) throws(StoreError) {
        try self.init(text)
        self.isAnyServer = isAnyServer
    }

    /// The settings of a connection in order; libpq lets later ones replace earlier ones.
    func settings(name: String) -> [(String, String)] {
        [
            ("connect_timeout", "10"), ("keepalives_idle", "10"), ("keepalives_interval", "5"),
            ("keepalives_count", "3"), ("tcp_user_timeout", "30000"), ("dbname", text),
            ("application_name", name), ("client_encoding", "UTF8"), ("gssencmode", "disable"),
            ("target_session_attrs", isAnyServer ? "any" : "read-write"),
        ]
    }

    /// The hosts to try, at least one.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` if one of them might be spoken to without a check of its certificate and name.
    func hosts(name: String) throws(StoreError) -> [StoreHost] {
        let collected = ConnectionSettings(collecting: settings(name: name))
        try demandSafe(collected)
        return StoreHost.all(of: collected)
    }

    /// Checks the settings that libpq has collected from the URI, the service file and the environment.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` if a host on another machine might be spoken to without a check of its
    ///   certificate and name.
    func demandSafe(_ settings: ConnectionSettings) throws(StoreError) {
        guard settings["sslmode"] != "verify-full" else { return }
        // An address counts instead of a name; without both it is the socket of this machine.
        let places = settings["hostaddr"] ?? settings["host"] ?? ""
        for place in places.split(separator: ",", omittingEmptySubsequences: true).map(String.init)
        where !Self.isSocket(place) && !Self.isLoopback(place) && place != "localhost" {
            throw .uncheckedDatabase(place)
        }
    }

    static func isSocket(_ host: String) -> Bool { host.isEmpty || host.hasPrefix("/") || host.hasPrefix("@") }

    static func isLoopback(_ address: String) -> Bool {
        var four = in_addr()
        if inet_pton(AF_INET, address, &four) == 1 { return UInt32(bigEndian: four.s_addr) >> 24 == 127 }
        return address == "::1"
    }
}

/// One host of an address with several.
struct StoreHost: Sendable {
    /// What replaces the lists of the address.
    var settings: [(String, String)]
    /// For texts.
    var text: String

    /// The port of an empty entry, as libpq has it.
    private static let defaultPort = "5432"

    /// Splits the lists of hosts, addresses and ports, which libpq reads in parallel.
    ///
    /// - Returns: one host without settings of its own if there is only one, if libpq refuses the lists, or if an entry is
    ///   empty: what libpq takes for that cannot be named.
    static func all(of settings: ConnectionSettings) -> [StoreHost] {
        func list(_ keyword: String) -> [String]? {
            settings[keyword]?.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        }
        let whole = [StoreHost(settings: [], text: settings["host"] ?? settings["hostaddr"] ?? "")]
        let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port") ?? [])
        guard let places = addresses ?? names, places.count > 1, (names ?? places).count == places.count,
            ports.count <= 1 || ports.count == places.count, !((names ?? []) + places).contains("")
        else {
            return whole
        }
        return places.indices.map { place in
            var own: [(String, String)] = []
            if let names { own.append(("host", names[place])) }
            if let addresses { own.append(("hostaddr", addresses[place])) }
            let port = ports.count > 1 ? ports[place] : ports.first ?? ""
            own.append(("port", port.isEmpty ? defaultPort : port))
            return StoreHost(settings: own, text: "\(names?[place] ?? places[place]):\(own.last?.1 ?? "")")
        }
    }
}

/// What libpq knows of a connection's settings, by their keywords.
struct ConnectionSettings {
    private var values: [String: String] = [:]

    /// No settings.
    init() {}

    /// - Parameter connection: one that has been started, or that libpq has refused to start.
    init(_ connection: OpaquePointer) {
        guard let options = PQconninfo(connection) else { return }
        defer { PQconninfoFree(options) }
        add(options)
    }

    init(options: UnsafeMutablePointer<PQconninfoOption>) { add(options) }

    private mutating func add(_ options: UnsafeMutablePointer<PQconninfoOption>) {
        var option = options
        while let keyword = option.pointee.keyword {
            if let value = option.pointee.val, value.pointee != 0 {
                values[String(cString: keyword)] = String(cString: value)
            }
            option += 1
        }
    }

    subscript(_ keyword: String) -> String? { values[keyword] }
}
