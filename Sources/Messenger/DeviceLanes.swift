// Which lane of the queue an envelope takes. The queue sends the requests of one lane one after the other, and different
// lanes at the same time: so all that waits for a device has to be in one lane, or it would come in another order.

import Envelope

/// The lanes in which requests for devices wait.
struct DeviceLanes {
    private struct Use {
        var lane: String
        /// Requests that wait in it.
        var requests = 1
    }

    /// Devices for which nothing waits have none.
    private var uses: [DeviceID: Use] = [:]

    /// Divides devices into those that share a lane, in the order of their first devices.
    ///
    /// Devices for which nothing waits join the first lane; they have one of their own if nothing waits for any device.
    func lanes(for devices: [DeviceID]) -> [(lane: String, devices: [DeviceID])] {
        let first = devices.lazy.compactMap { uses[$0]?.lane }.first ?? Self.name(devices)
        var lanes: [(lane: String, devices: [DeviceID])] = []
        for device in devices {
            let lane = uses[device]?.lane ?? first
            if let index = lanes.firstIndex(where: { $0.lane == lane }) {
                lanes[index].devices.append(device)
            } else {
                lanes.append((lane, [device]))
            }
        }
        return lanes
    }

    /// A request for devices waits in a lane.
    mutating func begin(_ devices: [DeviceID], in lane: String) {
        for device in devices {
            if uses[device] == nil { uses[device] = Use(lane: lane) } else { uses[device]?.requests += 1 }
        }
    }

    /// A request for devices has ended.
    mutating func end(_ devices: [DeviceID]) {
        for device in devices {
            guard let use = uses[device] else { continue }
            if use.requests > 1 { uses[device]?.requests -= 1 } else { uses[device] = nil }
        }
    }

    private static func name(_ devices: [DeviceID]) -> String {
        "send " + devices.map(\.name).joined(separator: " ")
    }
}
