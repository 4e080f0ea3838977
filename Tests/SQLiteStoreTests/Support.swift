import DeviceDirectory
import DoubleRatchet
import Envelope
import GRDBSQLite
import Glibc
import SQLiteKit
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

/// A directory that goes when the test ends.
final class Scratch: Sendable {
    let path: String

    init() {
        var template = Array("/tmp/pawl-store-XXXXXX".utf8CString)
        path = template.withUnsafeMutableBufferPointer { String(cString: mkdtemp($0.baseAddress!)) }
    }

    deinit { _ = run("rm", "-rf", path) }

    /// The directory of a store inside it.
    var data: String { path + "/data" }
    var key: StorageKey.Source { .standard(directory: data) }
    var store: String { data + "/pawl.sqlite" }
    var files: StoreFiles { StoreFiles(data) }
    var keyPath: String { data + "/storage.key" }

    func open(_ limits: StoreLimits = StoreLimits()) throws -> SQLiteStore {
        try SQLiteStore.open(directory: data, key: key, limits: limits)
    }

    /// Opens a store for the length of a closure.
    func with(_ body: (SQLiteStore) throws -> Void) throws { try body(open()) }

    /// Changes a database behind the store's back.
    func edit(_ sql: String, _ path: String? = nil) {
        var handle: OpaquePointer?
        #expect(sqlite3_open(path ?? store, &handle) == SQLITE_OK)
        #expect(sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK, "\(String(cString: sqlite3_errmsg(handle)))")
        sqlite3_close(handle)
    }

    /// What opening is refused with.
    func refusal(_ key: StorageKey.Source? = nil) -> StoreError? {
        do {
            _ = try SQLiteStore.open(directory: data, key: key ?? self.key)
            return nil
        } catch {
            return error
        }
    }
}

extension Scratch {
    /// The error of a damaged store.
    func damaged(_ damage: Damage) -> StoreError { .corrupt(StoreError.damaged(store, damage)) }
}

/// Runs a command of the system; says whether it succeeded.
@discardableResult
func run(_ command: String...) -> Bool {
    var arguments: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) } + [nil]
    defer { arguments.forEach { free($0) } }
    var child: pid_t = 0
    guard posix_spawnp(&child, command[0], nil, nil, &arguments, environ) == 0 else { return false }
    var status: Int32 = 0
    waitpid(child, &status, 0)
    return status == 0
}

func bytes(_ path: String) -> [UInt8] {
    guard let file = fopen(path, "r") else { return [] }
    defer { fclose(file) }
    var output: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 1 << 16)
    while case let count = fread(&chunk, 1, chunk.count, file), count > 0 { output.append(contentsOf: chunk[..<count]) }
    return output
}

func write(_ bytes: [UInt8], _ path: String, mode: mode_t = 0o600) {
    unlink(path)
    let number = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    #expect(number >= 0)
    #expect(Glibc.write(number, bytes, bytes.count) == bytes.count)
    close(number)
    chmod(path, mode)
}

func mode(_ path: String) -> mode_t {
    var status = stat()
    return stat(path, &status) == 0 ? status.st_mode & 0o777 : 0
}

func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

/// The schema of a database: each object's kind, name and text with its spaces evened out.
func schema(_ path: String) -> [String] {
    var handle: OpaquePointer?
    var statement: OpaquePointer?
    #expect(sqlite3_open(path, &handle) == SQLITE_OK)
    sqlite3_prepare_v2(
        handle, "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema", -1, &statement, nil)
    defer {
        sqlite3_finalize(statement)
        sqlite3_close(handle)
    }
    var objects: [String] = []
    while sqlite3_step(statement) == SQLITE_ROW, let text = sqlite3_column_text(statement, 0) {
        let even = String(cString: text).split { " \n".contains($0) }.joined(separator: " ")
        objects.append(even.replacing("( ", with: "(").replacing(" )", with: ")").replacing(" ,", with: ","))
    }
    return objects.filter { !$0.contains("sqlite_stat") }.sorted()
}

/// Keys that must not come back with an older state: private prekeys and sender keys, and the one-time prekeys of published devices.
enum KeyRows {
    static func all() throws -> [StoreChange] {
        var random = SystemRandomSource()
        let identity = IdentityKeyPair(random: &random)
        let signed = SignedPreKey(id: 1, identity: identity, random: &random)
        let kem = KEMPreKey(id: 2, isLastResort: true, identity: identity, random: &random)
        let bundle = PreKeyBundle(
            identity: identity.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey, oneTimePreKey: nil)
        let device = PublishedDevice(
            id: DeviceID(7), bundle: bundle, oneTime: [OneTimePreKey(id: 3, random: &random).publicKey])
        var value: [UInt8] = []
        value.append(field: Array("alice".utf8))
        return [
            RecordRow(kind: .preKey, name: "o 1", value: [1]),
            RecordRow(kind: .senderKey, name: "own #den", value: [1]),
            RecordRow(kind: .peer, name: "bob", value: [1]),
            RecordRow(kind: .directoryDevice, name: "7", value: value + device.bytes),
            RecordRow(kind: .directoryDevice, name: "8", value: [1]),
        ].map { .putRecord($0) }
    }

    /// What an older state that was accepted has of them: no private key, and of the directory what can be used again.
    static func expectNoneIsUsedAgain(_ store: SQLiteStore) throws {
        #expect(try store.records(.preKey).isEmpty && store.records(.senderKey).isEmpty)
        #expect(try store.records(.peer).count == 1, "whom somebody knows is no key that wears out")
        let rows = try store.records(.directoryDevice)
        #expect(rows.map(\.name) == ["7"])
        var cursor = ByteCursor(try #require(rows.first).value)
        #expect(try cursor.field() == Array("alice".utf8))
        let device = try PublishedDevice(&cursor)
        #expect(device.oneTime.isEmpty && device.id == DeviceID(7))
        try device.bundle.verify()
    }
}
