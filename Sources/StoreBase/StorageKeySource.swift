// Reads the storage key from its source, and explains why one is refused.

import Envelope
import Foundation
import SQLiteKit
package import StorePort

extension StorageKey {
    /// The place of the key.
    package enum Source: Equatable, Sendable {
        /// The path of a file of 32 bytes and mode 0600. It is made at the first start.
        case file(String)
        /// The name of an environment variable that holds the key in Base64 or hexadecimal.
        case environment(String)
        /// A key that the caller has made, such as from a password.
        case derived(StorageKey)

        /// `storage.key` in the directory of the store.
        package static func standard(directory: String) -> Source {
            .file(FileSystem.withoutSlash(directory) + "/storage.key")
        }

        /// Whether there is a key, valid or not.
        package var isPresent: Bool {
            switch self {
            case .file(let path): FileSystem.exists(path)
            case .environment(let name): getenv(name) != nil
            case .derived: true
            }
        }
    }

    /// Reads a key.
    ///
    /// - Throws: ``StoreError/missing(_:)`` or ``StoreError/unusableKey(_:)``, with the remedy.
    package static func read(_ source: Source) throws(StoreError) -> StorageKey {
        switch source {
        case .file(let path): try read(file: path)
        case .environment(let name): try read(environment: name)
        case .derived(let key): key
        }
    }

    /// Writes a key to a new file, with mode 0600.
    package func create(_ path: String) throws(StoreError) {
        try FileSystem.makeDirectory(FileSystem.parent(of: path))
        let result = withBytes { bytes in
            Result { () throws(StoreError) in try FileSystem.create(path, bytes) }
        }
        try result.get()
    }

    private static func read(file path: String) throws(StoreError) -> StorageKey {
        guard FileSystem.exists(path) else {
            throw .noKey(at: path)
        }
        let number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard number >= 0 else {
            throw .unreadableKey(path, String(cString: strerror(errno)), user: name(ofUser: geteuid()))
        }
        defer { _ = close(number) }
        var status = stat()
        guard fstat(number, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw .keyIsNoFile(path)
        }
        guard status.st_mode & 0o077 == 0 else {
            throw .openKey(path, mode: status.st_mode & 0o777)
        }
        guard Int(status.st_size) == length else {
            throw .keyOfWrongLength(path, length: Int(status.st_size))
        }
        var bytes = [UInt8](repeating: 0, count: length)
        defer { SecretBytes.wipe(&bytes) }
        let count = bytes.withUnsafeMutableBytes { pread(number, $0.baseAddress!, $0.count, 0) }
        guard count == length else { throw FileSystem.failure("read", path) }
        return StorageKey(bytes)
    }

    private static func read(environment name: String) throws(StoreError) -> StorageKey {
        guard let value = getenv(name) else {
            throw .keyVariableUnset(name)
        }
        var text = Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
        defer { SecretBytes.wipe(&text) }
        guard var bytes = KeyText.decode(text) else {
            throw .keyVariableUnreadable(name)
        }
        defer { SecretBytes.wipe(&bytes) }
        return StorageKey(bytes)
    }

    private static func name(ofUser id: uid_t) -> String {
        guard let entry = getpwuid(id), let name = entry.pointee.pw_name else { return String(id) }
        return String(cString: name)
    }
}

/// A key as text.
enum KeyText {
    /// Thirty-two bytes from 64 hexadecimal digits, or from Base64 in either alphabet, padded or not; nil for any other text.
    static func decode(_ text: [UInt8]) -> [UInt8]? {
        var text = text.filter { !" \t\r\n".utf8.contains($0) }
        defer { SecretBytes.wipe(&text) }
        if text.count == StorageKey.length * 2 { return hexadecimal(text) }
        for _ in 0..<2 where text.last == UInt8(ascii: "=") { text.removeLast() }
        // The alphabet for URLs (RFC 4648 section 5) differs in two characters.
        for index in text.indices {
            switch text[index] {
            case UInt8(ascii: "-"): text[index] = UInt8(ascii: "+")
            case UInt8(ascii: "_"): text[index] = UInt8(ascii: "/")
            default: break
            }
        }
        guard text.count == Base64.encodedLength(StorageKey.length) else { return nil }
        return Base64.decode(text)
    }

    private static func hexadecimal(_ digits: [UInt8]) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 2)
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let high = Character(UnicodeScalar(digits[index])).hexDigitValue,
                let low = Character(UnicodeScalar(digits[index + 1])).hexDigitValue
            else { return nil }
            bytes.append(UInt8(high << 4 | low))
        }
        return bytes
    }
}
