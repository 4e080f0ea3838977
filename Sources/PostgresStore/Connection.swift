// One connection to the database, over libpq. One thread at a time uses it. All waits have a limit of our own: a server that
// waits for a standby answers to none of its own timeouts.

import CLibpq
import Foundation
import StorePort

/// Why a statement has no result.
enum StatementFailure: Error {
    /// Nothing was sent: there is no connection.
    case unreachable(String)
    /// A check of ours stands against it: the server knows less than this gateway, or a row is not what it should be.
    case own(StoreError)
    /// The server refused the statement, and nothing of it has happened.
    case refused(SQLState, String)
    /// It is unknown whether the statement has happened.
    case lost(String)
}

/// The code of an error of the server.
struct SQLState: Equatable, Sendable {
    let code: String

    static let divisionByZero = SQLState(code: "22012")
    static let uniqueViolation = SQLState(code: "23505")
    static let readOnly = SQLState(code: "25006")
    static let outcomeUnknown = SQLState(code: "40003")
    static let noSchema = SQLState(code: "3F000")
    static let noTable = SQLState(code: "42P01")
    static let noPrivilege = SQLState(code: "42501")

    /// Serialization failures and deadlocks: the transaction has not happened, and can be repeated.
    var isTransient: Bool { code.hasPrefix("40") && self != .outcomeUnknown }
}

/// A connection.
final class Connection: @unchecked Sendable {
    // `@unchecked`: the `Link` that has it lets one thread at a time use it.

    /// Counts the warnings of the server.
    private final class Notices {
        var warnings: [String] = []
    }

    private let pointer: OpaquePointer
    private let notices = Notices()
    private var prepared: [String: String] = [:]
    /// Whether statements belong to one transaction, between ``begin(timeout:)`` and ``end(_:timeout:)``.
    private var isInTransaction = false
    /// Ours: prepared statements of a connection; others are sent whole each time.
    private static let preparedLimit = 128

    /// Connects to the first host of an address that answers and can be written to.
    ///
    /// libpq tries them one after the other as well, but none of its own time limits holds here: a host without an answer,
    /// as one without power, would take the time of all others.
    ///
    /// - Parameters:
    ///   - name: by which the server lists the connection.
    ///   - timeout: in milliseconds. Each host has an equal share of what is left.
    ///   - first: the place of the host that is tried first; then of that which has answered.
    /// - Throws: ``StoreError/unavailable(_:)``, with the remedy.
    static func open(
        _ address: StoreAddress, name: String, timeout: Int, first: inout Int
    ) throws(StoreError) -> Connection {
        let hosts = try address.hosts(name: name)
        let deadline = Deadline(timeout)
        var failures: [String] = []
        for step in hosts.indices {
            let place = (first + step) % hosts.count
            let share = Int(deadline.remaining) / (hosts.count - step)
            do throws(StoreError) {
                let connection = try Connection(address.settings(name: name) + hosts[place].settings, address, share)
                first = place
                return connection
            } catch {
                guard hosts.count > 1 else { throw error }
                failures.append("\(hosts[place].text): \(error.message)")
            }
        }
        throw .unavailable("No host of the database can be used. \(failures.joined(separator: " "))")
    }

    /// The same, without a memory of the host.
    static func open(_ address: StoreAddress, name: String, timeout: Int) throws(StoreError) -> Connection {
        var first = 0
        return try open(address, name: name, timeout: timeout, first: &first)
    }

    private init(
        _ settings: [(String, String)], _ address: StoreAddress, _ timeout: Int
    ) throws(StoreError) {
        guard let pointer = Self.start(settings) else {
            throw .unavailable("There is no memory for a connection to the database.")
        }
        self.pointer = pointer
        PQsetNoticeReceiver(
            pointer,
            { argument, result in
                guard let argument else { return }
                let severity = PQresultErrorField(result, DiagnosticField.severity).map { String(cString: $0) }
                guard severity == "WARNING" else { return }
                let text = PQresultErrorField(result, DiagnosticField.message).map { String(cString: $0) } ?? ""
                Unmanaged<Notices>.fromOpaque(argument).takeUnretainedValue().warnings.append(text)
            }, Unmanaged.passUnretained(notices).toOpaque())
        // If one of these throws, `deinit` closes the connection.
        try address.demandSafe(ConnectionSettings(pointer))
        try establish(timeout: timeout)
        try demandEncryption()
        PQsetnonblocking(pointer, 1)
    }

    deinit { PQfinish(pointer) }

    /// Begins to connect. The caller closes what is returned; nil if there is no memory.
    fileprivate static func start(_ settings: [(String, String)]) -> OpaquePointer? {
        let keywords = settings.map { strdup($0.0) }
        let values = settings.map { strdup($0.1) }
        defer { for text in keywords + values { free(text) } }
        return PQconnectStartParams(
            keywords.map { UnsafePointer($0) } + [nil], values.map { UnsafePointer($0) } + [nil], 1)
    }

    /// Whether the connection is usable, as far as is known here.
    var isOpen: Bool { PQstatus(pointer) == CONNECTION_OK }

    private var failureText: String {
        let text = PQerrorMessage(pointer).map { String(cString: $0) } ?? ""
        return text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }.joined(separator: "; ")
    }

    private func establish(timeout: Int) throws(StoreError) {
        let deadline = Deadline(timeout)
        var state = PGRES_POLLING_WRITING
        while state != PGRES_POLLING_OK {
            guard state != PGRES_POLLING_FAILED, PQstatus(pointer) != CONNECTION_BAD else {
                throw .unavailable("The database cannot be reached: \(failureText).")
            }
            guard wait(reading: state == PGRES_POLLING_READING, writing: state == PGRES_POLLING_WRITING, deadline)
            else {
                throw .unavailable("The database did not answer within \((timeout + 999) / 1000) s.")
            }
            state = PQconnectPoll(pointer)
        }
    }

    /// Refuses a connection in the clear to another machine, whatever its settings say.
    private func demandEncryption() throws(StoreError) {
        guard PQsslInUse(pointer) == 0 else { return }
        let host = PQhost(pointer).map { String(cString: $0) } ?? ""
        let address = PQhostaddr(pointer).map { String(cString: $0) } ?? ""
        guard StoreAddress.isSocket(host) || StoreAddress.isLoopback(address) else { throw .plainDatabase(host) }
    }

    /// Waits until the socket can be read or written.
    ///
    /// - Returns: false at the deadline.
    private func wait(reading: Bool, writing: Bool, _ deadline: Deadline) -> Bool {
        let events = (reading ? POLLIN : 0) | (writing ? POLLOUT : 0)
        while true {
            var poller = pollfd(fd: PQsocket(pointer), events: Int16(events), revents: 0)
            let count = poll(&poller, 1, deadline.remaining)
            if count > 0 { return true }
            if count == 0 { return false }
            guard errno == EINTR else { return true }
        }
    }

    // MARK: Statements

    /// Runs a statement, and returns its rows when the server has ended its transaction.
    ///
    /// - Parameters:
    ///   - isPrepared: whether the server keeps the statement for the next time.
    ///   - isCommit: whether a warning of the server makes the outcome unknown: a cancelled wait for a standby is one.
    ///   - timeout: in milliseconds.
    func run(
        _ sql: String, _ parameters: [Parameter], isPrepared: Bool, isCommit: Bool = false, timeout: Int
    ) throws(StatementFailure) -> Rows {
        try noticeEnd()
        let deadline = Deadline(timeout)
        let name = isPrepared ? try prepare(sql, parameters, deadline) : nil
        notices.warnings = []
        let sent = send(sql, name, parameters)
        guard sent else {
            guard isOpen else { throw .lost(failureText) }
            throw .refused(SQLState(code: ""), failureText)
        }
        let result = try result(deadline)
        if isCommit, let warning = notices.warnings.first { throw .lost("the server warned: \(warning)") }
        return result
    }

    /// Runs several statements without parameters as one transaction.
    func runAll(_ sql: String, timeout: Int) throws(StatementFailure) {
        try noticeEnd()
        guard PQsendQuery(pointer, sql) == 1 else { throw .lost(failureText) }
        _ = try result(Deadline(timeout))
    }

    /// Begins a transaction of several statements. Only a copy of a whole store is one; a commit is one statement.
    ///
    /// - Parameter isSnapshot: whether all its reads see one moment.
    func begin(isSnapshot: Bool = false, timeout: Int) throws(StatementFailure) {
        try noticeEnd()
        isInTransaction = true
        try runAll(isSnapshot ? "BEGIN ISOLATION LEVEL REPEATABLE READ" : "BEGIN", timeout: timeout)
    }

    /// Commits a transaction, or rolls it back.
    func end(commits: Bool, timeout: Int) throws(StatementFailure) {
        isInTransaction = false
        _ = try run(commits ? "COMMIT" : "ROLLBACK", [], isPrepared: false, isCommit: commits, timeout: timeout)
    }

    /// Notices a connection that the server has closed, before anything is sent over it.
    private func noticeEnd() throws(StatementFailure) {
        guard isOpen else { throw .unreachable("the connection was closed") }
        var poller = pollfd(fd: PQsocket(pointer), events: Int16(POLLIN), revents: 0)
        guard poll(&poller, 1, 0) > 0 else { return }
        guard PQconsumeInput(pointer) == 1, isOpen else { throw .unreachable(failureText) }
    }

    private func prepare(
        _ sql: String, _ parameters: [Parameter], _ deadline: Deadline
    ) throws(StatementFailure) -> String? {
        if let name = prepared[sql] { return name }
        guard prepared.count < Self.preparedLimit else { return nil }
        let name = "pawl_\(prepared.count)"
        let types = parameters.map { Oid($0.kind.rawValue) }
        guard PQsendPrepare(pointer, name, sql, Int32(types.count), types) == 1 else {
            throw .unreachable(failureText)
        }
        do throws(StatementFailure) { _ = try result(deadline) } catch {
            // Nothing was to happen yet.
            guard case .lost(let text) = error else { throw error }
            throw .unreachable(text)
        }
        prepared[sql] = name
        return name
    }

    private func send(_ sql: String, _ name: String?, _ parameters: [Parameter]) -> Bool {
        // One buffer, whose places libpq is given: the addresses of many arrays are not valid at once.
        var buffer: [UInt8] = []
        buffer.reserveCapacity(parameters.reduce(0) { $0 + $1.value.count } + 1)
        var places: [Int] = []
        for parameter in parameters {
            places.append(buffer.count)
            buffer += parameter.value
        }
        buffer.append(0)
        let lengths = parameters.map { Int32($0.value.count) }
        let formats = parameters.map { _ in Int32(1) }
        let types = parameters.map { Oid($0.kind.rawValue) }
        let count = Int32(parameters.count)
        return buffer.withUnsafeBytes { bytes in
            let start = bytes.bindMemory(to: CChar.self).baseAddress!
            let values = places.map { Optional(start + $0) }
            if let name { return PQsendQueryPrepared(pointer, name, count, values, lengths, formats, 1) == 1 }
            return PQsendQueryParams(pointer, sql, count, types, values, lengths, formats, 1) == 1
        }
    }

    /// Sends what is left and reads until the server is ready for the next statement. The transaction ends with that, after
    /// the result of its statement.
    private func result(_ deadline: Deadline) throws(StatementFailure) -> Rows {
        try flush(deadline)
        var rows: Rows?
        var refusal: (SQLState, String)?
        while true {
            while PQisBusy(pointer) == 1 {
                guard wait(reading: true, writing: false, deadline) else { throw .lost("the database did not answer") }
                guard PQconsumeInput(pointer) == 1 else { throw .lost(failureText) }
            }
            guard let result = PQgetResult(pointer) else { break }
            switch PQresultStatus(result) {
            case PGRES_TUPLES_OK, PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: rows = Rows(result)
            default:
                defer { PQclear(result) }
                guard let failure = Self.refusal(result) else { throw .lost(failureText) }
                refusal = refusal ?? failure
            }
        }
        let status = PQtransactionStatus(pointer)
        let isReady = isInTransaction ? status == PQTRANS_INTRANS || status == PQTRANS_INERROR : status == PQTRANS_IDLE
        guard isOpen, isReady else { throw .lost(failureText) }
        if let (state, text) = refusal { throw .refused(state, text) }
        guard let rows else { throw .lost("the database gave no result") }
        return rows
    }

    private func flush(_ deadline: Deadline) throws(StatementFailure) {
        while true {
            switch PQflush(pointer) {
            case 0: return
            case 1:
                // A server that waits for us to read would never read what is left.
                guard wait(reading: true, writing: true, deadline) else { throw .lost("the database did not answer") }
                guard PQconsumeInput(pointer) == 1 else { throw .lost(failureText) }
            default: throw .lost(failureText)
            }
        }
    }

    /// An error after which the connection goes on; nil if the server has ended it, or if it does not know the outcome.
    private static func refusal(_ result: OpaquePointer) -> (SQLState, String)? {
        func field(_ field: Int32) -> String? { PQresultErrorField(result, field).map { String(cString: $0) } }
        guard let code = field(DiagnosticField.state), field(DiagnosticField.severity) == "ERROR" else { return nil }
        let state = SQLState(code: code)
        return state == .outcomeUnknown ? nil : (state, field(DiagnosticField.message) ?? "")
    }
}

extension ConnectionSettings {
    /// Collects settings without a connection.
    ///
    /// libpq reads service files and the environment only for a connection. It refuses the last value, after it has collected
    /// all settings and before it looks for a host.
    init(collecting settings: [(String, String)]) {
        guard let pointer = Connection.start(settings + [("target_session_attrs", "none of them")]) else {
            self.init()
            return
        }
        defer { PQfinish(pointer) }
        self.init(pointer)
    }
}

/// The fields of an error, by the letters of the protocol; the macros of the header are not numbers to Swift.
enum DiagnosticField {
    static let state = Int32(UInt8(ascii: "C"))
    static let message = Int32(UInt8(ascii: "M"))
    /// Not translated.
    static let severity = Int32(UInt8(ascii: "V"))
}

/// A point in time, by the monotonic clock.
struct Deadline {
    private let end: ContinuousClock.Instant

    /// - Parameter milliseconds: from now on.
    init(_ milliseconds: Int) { end = .now + .milliseconds(milliseconds) }

    /// For `poll`: milliseconds, at least 0.
    var remaining: Int32 {
        let left = ContinuousClock.now.duration(to: end)
        let milliseconds = left.components.seconds * 1000 + left.components.attoseconds / 1_000_000_000_000_000
        return Int32(clamping: max(milliseconds, 0))
    }

    var hasPassed: Bool { remaining == 0 }
}
