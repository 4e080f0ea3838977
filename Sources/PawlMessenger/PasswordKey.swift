// The key of the history, from the app's password: Argon2id (RFC 9106) of libsodium. Function, parameters and salt are in
// a file beside the store, so that later versions can raise the parameters for new stores.

import CSodium
import Foundation
package import SQLiteStore
package import StorePort

/// How a key is made from a password.
package struct PasswordKey: Equatable, Sendable {
    /// Ours: what libsodium calls moderate, 256 MiB and some 0.7 s on a phone; a guess costs an attacker as much.
    package static let standard = (operations: UInt64(3), memory: 256 << 20)
    /// The least that libsodium accepts. For tests.
    package static let least = (operations: UInt64(1), memory: 8192)
    /// Ours: bounds of the parameters in a file, so that a damaged one does not use all memory.
    private static let bounds = (operations: UInt64(1)...64, memory: 8192...(4 << 30))
    private static let saltLength = 16
    private static let name = "argon2id13"

    package let operations: UInt64
    /// In bytes.
    package let memory: Int
    package let salt: [UInt8]

    package init(operations: UInt64, memory: Int, salt: [UInt8]) {
        (self.operations, self.memory, self.salt) = (operations, memory, salt)
    }

    /// New parameters with a random salt.
    package static func make(_ cost: (operations: UInt64, memory: Int)) -> PasswordKey {
        var generator = SystemRandomNumberGenerator()
        let salt = (0..<saltLength).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        return PasswordKey(operations: cost.operations, memory: cost.memory, salt: salt)
    }

    /// Makes the key. Takes as long as the parameters say, and blocks the thread.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` if there is not enough memory.
    package func key(from password: String) throws(StoreError) -> StorageKey {
        var bytes = [UInt8](repeating: 0, count: StorageKey.length)
        defer { bytes.withUnsafeMutableBytes { sodium_memzero($0.baseAddress!, $0.count) } }
        let result = password.withCString { text in
            crypto_pwhash_argon2id(
                &bytes, UInt64(bytes.count), text, UInt64(password.utf8.count), salt, operations, memory,
                crypto_pwhash_argon2id_ALG_ARGON2ID13)
        }
        guard result == 0 else { throw .unavailable("There is not enough memory for the key of the history.") }
        return StorageKey(bytes)
    }

    // MARK: The file

    /// The four lines of the file: function, operations, memory in bytes, salt in hexadecimal.
    package var text: String {
        let salt = salt.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        return "\(Self.name)\n\(operations)\n\(memory)\n\(salt)\n"
    }

    /// Reads ``text`` and no other form; nil also if a parameter is out of bounds.
    package init?(text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.count == 5, lines[0] == Self.name, lines[4].isEmpty, let operations = UInt64(lines[1]),
            let memory = Int(lines[2]), Self.bounds.operations.contains(operations),
            Self.bounds.memory.contains(memory), lines[3].utf8.count == Self.saltLength * 2
        else { return nil }
        var salt: [UInt8] = []
        var rest = lines[3][...]
        while !rest.isEmpty {
            guard let byte = UInt8(rest.prefix(2), radix: 16) else { return nil }
            salt.append(byte)
            rest = rest.dropFirst(2)
        }
        self.init(operations: operations, memory: memory, salt: salt)
        guard self.text == text else { return nil }
    }
}

/// The place of a messenger's keys and history.
public struct MessengerDatabase: Sendable {
    private enum Place {
        case memory(InMemoryStore)
        case directory(String)
    }

    private let place: Place
    private var cost = PasswordKey.standard

    /// A store of its own directory, which is made if it is not there. One messenger uses it at a time.
    public static func directory(_ path: String) -> MessengerDatabase { MessengerDatabase(place: .directory(path)) }

    /// A store in memory, for tests. All copies of the value are the same store.
    public static func inMemory() -> MessengerDatabase { MessengerDatabase(place: .memory(InMemoryStore(.single))) }

    /// The same directory, with cheap parameters for a new one. For tests.
    package func withCost(_ cost: (operations: UInt64, memory: Int)) -> MessengerDatabase {
        var copy = self
        copy.cost = cost
        return copy
    }

    /// Opens the store with the app's password. Blocks the thread.
    ///
    /// - Throws: ``StoreError``: `wrongKey` if the password is another one.
    func open(_ password: String) throws(StoreError) -> (store: any Store, key: StorageKey) {
        switch place {
        case .memory(let store):
            let key = PasswordKey(
                operations: PasswordKey.least.operations, memory: PasswordKey.least.memory,
                salt: [UInt8](repeating: 0, count: 16))
            return (store, try key.key(from: password))
        case .directory(let path):
            let key = try parameters(in: path).key(from: password)
            do throws(StoreError) {
                return (try SQLiteStore.open(directory: path, key: .derived(key)), key)
            } catch {
                guard case .wrongKey = error else { throw error }
                throw .wrongKey("The password of the app is not the one under which the history was stored.")
            }
        }
    }

    /// The parameters in the file of a directory, made if there is none.
    private func parameters(in directory: String) throws(StoreError) -> PasswordKey {
        let path = directory + "/password.kdf"
        if let text = try? String(contentsOfFile: path, encoding: .utf8) {
            guard let parameters = PasswordKey(text: text) else {
                throw .corrupt("The parameters of the password in \(path) are damaged. Bring back a backup.")
            }
            return parameters
        }
        guard !FileManager.default.fileExists(atPath: directory + "/pawl.sqlite") else {
            throw .missing("The history is in \(directory), and \(path) is not. Bring back a backup.")
        }
        let parameters = PasswordKey.make(cost)
        do {
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
            // Written as a whole before the store is made; a crash in between leaves parameters without a store.
            try Data(parameters.text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
        } catch {
            throw .unavailable("The directory \(directory) cannot be written: \(error).")
        }
        return parameters
    }
}
