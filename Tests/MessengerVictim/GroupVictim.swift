// A member of a group over a gateway, in a process that is killed.

import Foundation
import PawlMessenger

/// Bytes of the files that are sent: two parts.
private let fileSize = 150_000

struct GroupVictim {
    let messenger: CypherMessenger
    /// Members to invite; none for those who are invited.
    let others: [Username]
    let directory: String

    private var name: Username { messenger.username }

    private func group() async throws -> GroupChat {
        while true {
            if let known = try await messenger.listGroupChats().first,
                let group = try await messenger.groupChat(known.id)
            {
                return group
            }
            if !others.isEmpty {
                // It fails while the gateway is away.
                _ = try? await messenger.createGroupChat(with: Set(others), name: "team")
            }
            try await Task.sleep(for: .milliseconds(50))
        }
    }

    private func messages(of group: GroupChat) async throws -> [AnyChatMessage] {
        var (before, messages): (UInt64?, [AnyChatMessage]) = (nil, [])
        while case let page = try await group.messages(before: before, limit: 200), let first = page.first {
            messages = page + messages
            before = first.order
        }
        return messages
    }

    private func contents(_ name: String) -> Data { Data(repeating: name.utf8.reduce(0, ^), count: fileSize) }

    /// Writes numbered texts and files, and changes the group, until the process is killed.
    func write() async throws {
        let group = try await group()
        say("group")
        if !others.isEmpty { try? await group.setModerator(others[0], true) }
        let own = try await messages(of: group).filter(\.isOwn)
        var number = own.compactMap { Int($0.text.split(separator: " ").last ?? "") }.max() ?? 0
        while true {
            number += 1
            let text = "\(name) \(number)"
            if number % 8 == 0 { try? await group.rename(text) }
            if let other = others.last, number % 7 == 0 {
                let isMember = try await group.info().members[other] != nil
                if isMember { try? await group.removeMembers([other]) } else { try? await group.addMembers([other]) }
            }
            if number % 5 == 0 {
                let file = URL(fileURLWithPath: directory).appending(path: "\(number)")
                try contents(text).write(to: file)
                if (try? await group.sendFile(file, name: text)) != nil { say("file \(text)") }
            }
            try await group.sendText(text)
            say("accepted \(text)")
            try await Task.sleep(for: .milliseconds(40))
        }
    }

    /// Takes what comes until the process is killed.
    func watch() async throws {
        _ = try await group()
        say("group")
        while true { try await Task.sleep(for: .seconds(60)) }
    }

    /// Reports the state of the group whenever it has changed. The owner adds all members again.
    func settle() async throws {
        let group = try await group()
        // One more version of the owner decides between branches that were made at the same time.
        while !others.isEmpty, (try? await group.rename("settled \(UInt64.random(in: .min ... .max))")) == nil {
            try await Task.sleep(for: .milliseconds(100))
        }
        var last = ""
        while true {
            let missing = Set(others).subtracting(try await group.info().members.keys)
            if !missing.isEmpty { try? await group.addMembers(missing) }
            let (info, messages) = (try await group.info(), try await messages(of: group))
            let files = messages.count { $0.attachment != nil }
            let unsent = messages.count { $0.isOwn && [.waiting, .undelivered].contains($0.state) }
            let state =
                "state \(info.version) \(info.members.count) \(messages.count) \(files) \(unsent) \(info.name)"
            if state != last { say(state) }
            last = state
            try await Task.sleep(for: .milliseconds(100))
        }
    }

    /// Lists all texts, reads all files, and ends.
    func list() async throws {
        for message in try await messages(of: try await group()) {
            guard let attachment = message.attachment else {
                say("text \(message.id) \(message.text)")
                continue
            }
            let place = URL(fileURLWithPath: directory).appending(path: "copy")
            try await messenger.readFile(of: message, to: place)
            let isWhole = try Data(contentsOf: place) == contents(attachment.name)
            say("\(isWhole ? "whole" : "damaged") \(message.id) \(attachment.name)")
        }
        say("end")
        messenger.close()
    }
}
