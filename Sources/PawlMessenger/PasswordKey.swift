// The key of the history, from the app's password. Function, parameters and salt are in a file beside the store, so that
// later versions can raise the parameters for new stores. swift-crypto has no Argon2id, so builds without libsodium (the
// trait `CLibraries`) make new stores with scrypt, and cannot open one that was made with Argon2id. All builds read scrypt.

import CryptoExtras
import Foundation
import SQLiteStore
package import StoreBase
package import StorePort

#if CLibraries
    import CSodium
#endif

/// How a key is made from a password.
package struct PasswordKey: Equatable, Sendable {
    /// A function that is expensive to guess with, and its parameters.
    package enum Function: Equatable, Sendable {
        /// Argon2id, version 1.3, with one lane (RFC 9106). Memory in bytes.
        case argon2id(operations: UInt64, memory: Int)
        /// scrypt with a parallelization of 1 (RFC 7914). It uses 128 times rounds times block size bytes of memory.
        case scrypt(rounds: Int, blockSize: Int)

        /// Ours: 256 MiB and some 0.7 s on a phone; a guess costs an attacker as much.
        package static let slowScrypt = Function.scrypt(rounds: 1 << 18, blockSize: 8)
        /// For tests.
        package static let fastScrypt = Function.scrypt(rounds: 1 << 10, blockSize: 8)

        #if CLibraries
            /// Ours: what libsodium calls moderate, 256 MiB and some 0.7 s on a phone; a guess costs an attacker as much.
            package static let standard = Function.argon2id(operations: 3, memory: 256 << 20)
            /// The least that libsodium accepts. For tests.
            package static let least = Function.argon2id(operations: 1, memory: 8192)
        #else
            package static let standard = slowScrypt
            package static let least = fastScrypt
        #endif

        fileprivate var name: String {
            switch self {
            case .argon2id: "argon2id13"
            case .scrypt: "scrypt"
            }
        }

        /// The two parameters, as they are in the file.
        fileprivate var parameters: (UInt64, Int) {
            switch self {
            case .argon2id(let operations, let memory): (operations, memory)
            case .scrypt(let rounds, let blockSize): (UInt64(rounds), blockSize)
            }
        }

        /// Ours: bounds of the parameters in a file, so that a damaged one does not use all memory: 4 GiB.
        fileprivate init?(_ name: String, _ first: UInt64, _ second: Int) {
            switch name {
            case "argon2id13":
                guard (1...64).contains(first), (8192...(4 << 30)).contains(second) else { return nil }
                self = .argon2id(operations: first, memory: second)
            case "scrypt":
                guard (1024...(1 << 22)).contains(first), first.nonzeroBitCount == 1, second == 8 else { return nil }
                self = .scrypt(rounds: Int(first), blockSize: second)
            default: return nil
            }
        }
    }

    private static let saltLength = 16

    package let function: Function
    package let salt: [UInt8]

    package init(_ function: Function, salt: [UInt8]) { (self.function, self.salt) = (function, salt) }

    /// New parameters with a random salt.
    package static func make(_ function: Function) -> PasswordKey {
        var generator = SystemRandomNumberGenerator()
        let salt = (0..<saltLength).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        return PasswordKey(function, salt: salt)
    }

    /// Makes the key. Takes as long as the parameters say, and blocks the thread.
    ///
    /// - Throws: ``StoreError/unavailable(_:)`` if there is not enough memory, or if this build lacks the function.
    package func key(from password: String) throws(StoreError) -> StorageKey {
        switch function {
        case .argon2id(let operations, let memory): try argon2id(password, operations, memory)
        case .scrypt(let rounds, let blockSize): try scrypt(password, rounds, blockSize)
        }
    }

    private func scrypt(_ password: String, _ rounds: Int, _ blockSize: Int) throws(StoreError) -> StorageKey {
        do {
            let key = try KDF.Scrypt.deriveKey(
                from: Data(password.utf8), salt: salt, outputByteCount: StorageKey.length, rounds: rounds,
                blockSize: blockSize, parallelism: 1)
            return key.withUnsafeBytes { StorageKey([UInt8]($0)) }
        } catch {
            throw .unavailable(Self.noMemory)
        }
    }

    private static let noMemory = "There is not enough memory for the key of the history."

    #if CLibraries
        private func argon2id(
            _ password: String, _ operations: UInt64, _ memory: Int
        ) throws(StoreError) -> StorageKey {
            var bytes = [UInt8](repeating: 0, count: StorageKey.length)
            defer { bytes.withUnsafeMutableBytes { sodium_memzero($0.baseAddress!, $0.count) } }
            let result = password.withCString { text in
                crypto_pwhash_argon2id(
                    &bytes, UInt64(bytes.count), text, UInt64(password.utf8.count), salt, operations, memory,
                    crypto_pwhash_argon2id_ALG_ARGON2ID13)
            }
            guard result == 0 else { throw .unavailable(Self.noMemory) }
            return StorageKey(bytes)
        }
    #else
        private func argon2id(
            _ password: String, _ operations: UInt64, _ memory: Int
        ) throws(StoreError) -> StorageKey {
            throw .unavailable("The history was stored with Argon2id, and this build has no libsodium.")
        }
    #endif

    // MARK: The file

    /// The four lines of the file: function, its parameters (Argon2id: operations, memory in bytes; scrypt: rounds, block
    /// size), salt in hexadecimal.
    package var text: String {
        let salt = salt.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let (first, second) = function.parameters
        return "\(function.name)\n\(first)\n\(second)\n\(salt)\n"
    }

    /// Reads ``text`` and no other form; nil also if a parameter is out of bounds.
    package init?(text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.count == 5, lines[4].isEmpty, let first = UInt64(lines[1]), let second = Int(lines[2]),
            let function = Function(String(lines[0]), first, second), lines[3].utf8.count == Self.saltLength * 2
        else { return nil }
        var salt: [UInt8] = []
        var rest = lines[3][...]
        while !rest.isEmpty {
            guard let byte = UInt8(rest.prefix(2), radix: 16) else { return nil }
            salt.append(byte)
            rest = rest.dropFirst(2)
        }
        self.init(function, salt: salt)
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
    private var function = PasswordKey.Function.standard
    private(set) var isRestored = false

    /// A store of its own directory, which is made if it is not there. One messenger uses it at a time.
    public static func directory(_ path: String) -> MessengerDatabase { MessengerDatabase(place: .directory(path)) }

    /// A store in memory, for tests. All copies of the value are the same store.
    public static func inMemory() -> MessengerDatabase { MessengerDatabase(place: .memory(InMemoryStore(.single))) }

    /// The same place, in which an earlier copy of it was put back. For the first start after that, and only for it.
    ///
    /// The device goes on as the same device. It drops its sessions, whose keys it may have used since the copy was made,
    /// and begins new ones. Without this call it would use keys twice, and others would not read what it sends.
    public func restored() -> MessengerDatabase {
        var copy = self
        copy.isRestored = true
        return copy
    }

    /// What a database in memory has now, as a database of its own. For tests.
    package func copied() -> MessengerDatabase {
        guard case .memory(let store) = place else { return self }
        return MessengerDatabase(place: .memory(store.copy()))
    }

    /// The same directory, with another function for a new one. For tests.
    package func with(_ function: PasswordKey.Function) -> MessengerDatabase {
        var copy = self
        copy.function = function
        return copy
    }

    /// Ours: one person writes some messages a second at most, so SQLite's page caches are small beside the app.
    private static let limits = StoreLimits(writerCache: 1 << 20, readerCache: 256 << 10)

    /// Opens the store with the app's password. Blocks the thread.
    ///
    /// - Throws: ``StoreError``: `wrongKey` if the password is another one.
    func open(_ password: String) throws(StoreError) -> (store: any Store, key: StorageKey) {
        switch place {
        case .memory(let store):
            let key = PasswordKey(.least, salt: [UInt8](repeating: 0, count: 16))
            return (store, try key.key(from: password))
        case .directory(let path):
            let key = try parameters(in: path).key(from: password)
            do throws(StoreError) {
                return (try SQLiteStore.open(directory: path, key: .derived(key), limits: Self.limits), key)
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
        let parameters = PasswordKey.make(function)
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
