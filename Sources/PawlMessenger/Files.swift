// Files in chats: sealed on this device, stored as blobs of the server, and named by a sealed message with their key.

import Crypto
import Envelope
public import Foundation
import Messenger

/// A file that a message names. Its contents are at the server, sealed; see ``CypherMessenger/readFile(of:to:)``.
public struct ChatAttachment: Hashable, Sendable {
    /// The name, without a path; at most 255 bytes.
    public let name: String
    /// The media type, such as `image/png`, as the sender has given it. It proves nothing about the contents.
    public let type: String
    /// Bytes, at most 100 MiB.
    public let size: UInt64

    init(_ file: FileReference) { (name, type, size) = (file.name, file.type, file.size) }
}

/// A blob of a file.
struct PublishedPart: Codable, Sendable {
    var data: Data
}

extension CypherMessenger {
    /// Ours: how often a part is sent or read before the call fails.
    private static let partAttempts = 6

    /// Seals and publishes a file, 128 KiB at a time.
    func publish(_ url: URL, name: String?, type: String) async throws -> FileReference {
        let name = name ?? url.lastPathComponent
        guard FileReference.isName(name), FileReference.isType(type) else { throw CypherMessengerError.tooLong }
        let file: FileHandle
        let size: UInt64
        do {
            file = try FileHandle(forReadingFrom: url)
            size = try file.seekToEnd()
            try file.seek(toOffset: 0)
        } catch {
            throw CypherMessengerError.fileFailed("The file cannot be read.")
        }
        defer { try? file.close() }
        guard size <= FileReference.sizeLimit else { throw CypherMessengerError.tooLong }
        let key = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) }
        var sealer = FileSealer(key: key, size: size)
        var parts: [String] = []
        do {
            for _ in 0..<FileReference.partCount(of: size) {
                let sealed: [UInt8]
                do {
                    sealed = try sealer.seal(try Self.read(file, FileReference.partSize))
                } catch {
                    throw CypherMessengerError.fileFailed("The file was changed while it was read.")
                }
                let part = PublishedPart(data: Data(sealed))
                parts.append(try await stubbornly { try await $0.publishBlob(part).id })
            }
            let reference = FileReference(
                size: size, digest: sealer.digest, key: key, name: name, type: type, parts: parts)
            guard let reference else { throw CypherMessengerError.serverFailed("The ids of its blobs are too long.") }
            return reference
        } catch {
            removeBlobs(parts)
            throw error
        }
    }

    /// Removes blobs of a file that nobody needs, in the background and once: a server that cannot be reached keeps them.
    func removeBlobs(_ ids: [String]) {
        guard !ids.isEmpty else { return }
        Task { [transport] in
            for id in ids {
                do {
                    try await transport.removePublishedBlob(byId: id)
                } catch CypherTransportError.notFound {
                    continue
                } catch {
                    return
                }
            }
        }
    }

    /// Reads up to a number of bytes.
    private static func read(_ file: FileHandle, _ count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count, let data = try file.read(upToCount: count - bytes.count), !data.isEmpty {
            bytes += data
        }
        return bytes
    }

    /// Repeats a call of the transport while the server does not answer.
    private func stubbornly<Value: Sendable>(
        _ body: (any CypherServerTransportClient) async throws -> Value
    ) async throws -> Value {
        var pause = Duration.milliseconds(100)
        for attempt in 1... {
            do {
                return try await body(transport)
            } catch let error as CypherTransportError where error != .offline || attempt == Self.partAttempts {
                throw CypherMessengerError(error)
            } catch  where attempt == Self.partAttempts || error is DecodingError {
                throw CypherMessengerError.serverFailed("\(error)")
            } catch {
                try await Task.sleep(for: pause)
                pause *= 2
            }
        }
        throw CypherMessengerError.serverFailed("no attempts")
    }

    /// Reads the file of a message from the server, and checks all of it before it is there.
    ///
    /// 128 KiB of it are in memory at once. If the call fails, nothing is at the place.
    ///
    /// - Parameters:
    ///   - message: a message with a file.
    ///   - url: where the file is written, in an existing directory. What is there is replaced.
    /// - Throws: ``CypherMessengerError``: `unknownMessage` if the message has no file, `notAuthentic` if the server has
    ///   other bytes than were sent, `serverFailed`, `unsupportedCall`, or `fileFailed`.
    public func readFile(of message: AnyChatMessage, to url: URL) async throws {
        guard let file = message.file else { throw CypherMessengerError.unknownMessage }
        let temporary = url.deletingLastPathComponent().appending(path: ".pawl-\(UUID().uuidString)")
        guard
            FileManager.default.createFile(
                atPath: temporary.path, contents: nil, attributes: [.posixPermissions: 0o600]),
            let output = try? FileHandle(forWritingTo: temporary)
        else { throw CypherMessengerError.fileFailed("The file cannot be written.") }
        defer { try? FileManager.default.removeItem(at: temporary) }
        var opener = FileOpener(file)
        do {
            defer { try? output.close() }
            for id in file.parts {
                let part = try await stubbornly { transport in
                    try await transport.readPublishedBlob(byId: id, as: PublishedPart.self)?.blob.data
                }
                guard let part else { throw CypherMessengerError.serverFailed("The server does not have the file.") }
                guard let opened = try? opener.open(Array(part)) else { throw CypherMessengerError.notAuthentic }
                do {
                    try output.write(contentsOf: opened)
                } catch {
                    throw CypherMessengerError.fileFailed("The file cannot be written.")
                }
            }
        }
        guard opener.isComplete else { throw CypherMessengerError.notAuthentic }
        guard rename(temporary.path, url.path) == 0 else {
            throw CypherMessengerError.fileFailed("The file cannot be written.")
        }
    }
}

extension PrivateChat {
    /// Sends a file of at most 100 MiB. It returns when the server has the sealed file, and the message is stored.
    ///
    /// - Parameters:
    ///   - url: a file on this device.
    ///   - name: what the other person is shown; nil for the name of the file.
    ///   - type: its media type, at most 127 bytes.
    /// - Throws: ``CypherMessengerError``: `unsupportedCall` if the transport has no blobs, `tooLong`, `fileFailed`,
    ///   `serverFull`, `serverFailed`, or an error of ``sendText(_:)``. Then nothing is sent.
    @discardableResult
    public func sendFile(
        _ url: URL, name: String? = nil, type: String = "application/octet-stream"
    ) async throws -> AnyChatMessage {
        let file = try await messenger.publish(url, name: name, type: type)
        return try await send(SendJob(to: username.raw, .file, text: file.text))
    }
}

extension GroupChat {
    /// Sends a file of at most 100 MiB to all members, as ``PrivateChat/sendFile(_:name:type:)`` does.
    @discardableResult
    public func sendFile(
        _ url: URL, name: String? = nil, type: String = "application/octet-stream"
    ) async throws -> AnyChatMessage {
        let file = try await messenger.publish(url, name: name, type: type)
        return try await send(SendJob(in: try self.name, .file, text: file.text))
    }
}
