import Foundation

/// Synapse on SQLite, client API only, in the environment that deploy/install-python makes.
package final class Synapse: Sendable {
    package static let serverName = "pawl.test"
    package static let password = "correct-horse-battery"
    /// What the application service logs in with.
    package static let serviceToken = "as-token-of-a-test"

    private let scratch: ScratchDirectory
    private let reservation: FreePort
    private let process = ServerProcess()

    /// It stays the same across `stop` and `start`.
    package var port: UInt16 { reservation.number }

    /// Starts it; ready when this returns.
    ///
    /// - Parameter hasService: whether it knows an application service with ``serviceToken``, whose users begin with `br_`.
    package init(hasService: Bool = false) throws {
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        try scratch.directory("data")
        // Its own tool's format: algorithm, version, seed.
        let seed = Data((0..<32).map { _ in UInt8.random(in: 0...255) }).base64EncodedString()
        try scratch.write("signing.key", "ed25519 a_pawl \(seed.prefix { $0 != "=" })\n")
        try scratch.write("log.yaml", Self.logging)
        var configuration = configuration
        if hasService {
            try scratch.write("service.yaml", Self.service)
            configuration += "app_service_config_files: [\(scratch.file("service.yaml"))]\n"
        }
        try scratch.write("homeserver.yaml", configuration)
        try start()
    }

    deinit {
        stop()
    }

    package func start() throws {
        try process.start {
            let child = try ChildProcess(
                MatrixPrograms.python(),
                ["-m", "synapse.app.homeserver", "--config-path", scratch.file("homeserver.yaml")],
                workingDirectory: scratch.path)
            try child.waitUntilListening(port, timeout: .seconds(600))
            return child
        }
    }

    package func stop() {
        process.stop()
    }

    package func kill() {
        process.kill()
    }

    /// What it has said: warnings and worse.
    package var output: String { process.output }

    // MARK: Accounts

    package static func id(_ user: String) -> String { "@\(user):\(serverName)" }

    /// Makes an account, past whatever stands before the server.
    ///
    /// - Returns: A token of it.
    @discardableResult
    package func register(_ user: String) throws -> String {
        let answer = try WebClient(port: port).request(
            "POST", "/_matrix/client/v3/register",
            ["username": .string(user), "password": .string(Self.password), "auth": ["type": "m.login.dummy"]])
        guard answer.status == 200, let token = answer.json["access_token"].string else {
            throw PeerError("\(user) is not registered: \(answer.status) \(answer.text)")
        }
        return token
    }

    // MARK: Looking

    /// The files of the server that show a text: its database with the log before it, uploads, its own log.
    package func files(showing text: String) -> [String] {
        PlaintextSearch(text).files(under: scratch.file("data"))
    }

    /// The events of a room as the server has them, the oldest first, for somebody who is in it.
    package func events(of room: String, as token: String, type: String = "m.room.message") throws -> [JSONValue] {
        let client = WebClient(port: port)
        client.headers = [("Authorization", "Bearer \(token)")]
        let answer = try client.request(
            "GET", "/_matrix/client/v3/rooms/\(MatrixPrograms.escaped(room))/messages?dir=f&limit=1000")
        guard answer.status == 200 else { throw PeerError("no events: \(answer.status) \(answer.text)") }
        return answer.json["chunk"].array.filter { $0["type"].string == type }
    }

    // MARK: Configuration

    private var configuration: String {
        let data = scratch.file("data")
        return """
            server_name: \(Self.serverName)
            public_baseurl: http://127.0.0.1:\(port)/
            pid_file: \(data)/synapse.pid
            signing_key_path: \(scratch.file("signing.key"))
            log_config: \(scratch.file("log.yaml"))
            listeners:
              - port: \(port)
                bind_addresses: [127.0.0.1]
                type: http
                x_forwarded: true
                resources: [{names: [client, media], compress: false}]
            database: {name: sqlite3, args: {database: \(data)/homeserver.db}}
            media_store_path: \(data)/media
            enable_registration: true
            enable_registration_without_verification: true
            registration_shared_secret: shared-secret-of-a-test
            macaroon_secret_key: macaroon-secret-of-a-test
            form_secret: form-secret-of-a-test
            # The default takes a quarter of a second for each login.
            bcrypt_rounds: 4
            # Nothing leaves the machine.
            report_stats: false
            trusted_key_servers: []
            suppress_key_server_warning: true
            federation_domain_whitelist: []
            send_federation: false
            url_preview_enabled: false
            encryption_enabled_by_default_for_room_type: "off"

            """ + Self.limits.map { "\($0)\n" }.joined()
    }

    /// There is no single switch for the limits of requests a second.
    private static let limits: [String] = {
        let none = "{per_second: 1000000, burst_count: 1000000}"
        func group(_ name: String, _ members: [String]) -> String {
            "\(name): {\(members.map { "\($0): \(none)" }.joined(separator: ", "))}"
        }
        return [
            "rc_message", "rc_registration", "rc_registration_token_validity", "rc_admin_redaction",
            "rc_joins_per_room",
            "rc_3pid_validation", "rc_third_party_invite", "rc_media_create", "rc_room_creation", "rc_key_requests",
            "rc_reports",
        ].map { "\($0): \(none)" } + [
            group("rc_login", ["address", "account", "failed_attempts"]), group("rc_joins", ["local", "remote"]),
            group("rc_invites", ["per_room", "per_user", "per_issuer"]), group("rc_presence", ["per_user"]),
        ]
    }()

    /// It is told of nothing.
    private static let service = """
        id: bridge
        url: null
        as_token: \(serviceToken)
        hs_token: hs-token-of-a-test
        sender_localpart: br_bot
        rate_limited: false
        namespaces:
          users: [{exclusive: true, regex: '@br_.*'}]
          aliases: []
          rooms: []

        """

    private static let logging = """
        version: 1
        formatters: {plain: {format: '%(asctime)s %(name)s %(levelname)s %(message)s'}}
        handlers: {errors: {class: logging.StreamHandler, formatter: plain, stream: ext://sys.stderr}}
        root: {level: WARNING, handlers: [errors]}
        disable_existing_loggers: false

        """
}

/// What deploy/install-python has made for Matrix.
package enum MatrixPrograms {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    static func python() throws -> String {
        let program = root.appending(path: ".build-peers-matrix/bin/python").path
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw PeerError("no \(program); Tests/run installs it")
        }
        return program
    }

    static var client: String { root.appending(path: "Tests/PeerKit/Matrix/Peers/nio_client.py").path }

    /// A room or event id as a part of a path.
    package static func escaped(_ id: String) -> String {
        id.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? id
    }
}
